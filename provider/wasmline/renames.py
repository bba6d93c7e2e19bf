"""Earlier module paths and names, which can be imported until release 0.2.0: docs/renames.md."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False  # every process imports this package, and ``typing`` and ``importlib.abc`` take ten milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.abc import Loader
    from types import ModuleType
    from typing import Any
else:
    Loader = object

MODULES = {
    "wasmline.build.sizes": "wasmline.build.memory_size",
    "wasmline.build.source": "wasmline.build.source_files",
    "wasmline.cli.attendance": "wasmline.cli.consumer_runner",
    "wasmline.cli.building": "wasmline.cli.build_progress",
    "wasmline.cli.columns": "wasmline.cli.table",
    "wasmline.cli.handler": "wasmline.cli.handler_option",
    "wasmline.cli.trial": "wasmline.cli.runnable",
    "wasmline.consumer.assignment": "wasmline.consumer.runtime.partition_lifecycle",
    "wasmline.consumer.at_least_once": "wasmline.consumer.runtime.at_least_once_committer",
    "wasmline.consumer.backend": "wasmline.consumer.backends.base",
    "wasmline.consumer.confluent": "wasmline.consumer.backends.kafka",
    "wasmline.consumer.confluent.assigned": "wasmline.leases.manual_backend",
    "wasmline.consumer.confluent.batch_transactions": "wasmline.job_offsets.shard_transactions",
    "wasmline.consumer.confluent.batches": "wasmline.consumer.backends.kafka.topic_limits",
    "wasmline.consumer.confluent.door": "wasmline.consumer.backends.kafka.lazy_offset_store",
    "wasmline.consumer.confluent.open_files": "wasmline.consumer.backends.kafka.file_descriptor_check",
    "wasmline.consumer.confluent.sink": "wasmline.consumer.backends.kafka.sink",
    "wasmline.consumer.confluent.source": "wasmline.consumer.backends.kafka.group_source",
    "wasmline.consumer.confluent.stable_read": "wasmline.consumer.backends.kafka.stable_offset_fetch",
    "wasmline.consumer.confluent.transactions": "wasmline.consumer.backends.kafka.transactions",
    "wasmline.consumer.counts": "wasmline.consumer.partition_counters",
    "wasmline.consumer.encodings": "wasmline.offset_maps.encodings",
    "wasmline.consumer.engines": "wasmline.consumer.runtime.executors",
    "wasmline.consumer.errand": "wasmline.background_call",
    "wasmline.consumer.event_loop": "wasmline.consumer.runtime.event_loop",
    "wasmline.consumer.exactly_once": "wasmline.consumer.runtime.transactional_committer",
    "wasmline.consumer.failure_log": "wasmline.consumer.runtime.failure_log",
    "wasmline.consumer.letters": "wasmline.consumer.runtime.dead_letter_builder",
    "wasmline.consumer.memory": "wasmline.consumer.backends.memory",
    "wasmline.consumer.memory.cluster": "wasmline.consumer.backends.memory.cluster",
    "wasmline.consumer.memory.group": "wasmline.consumer.backends.memory.group",
    "wasmline.consumer.memory.log": "wasmline.consumer.backends.memory.partition_log",
    "wasmline.consumer.memory.partitioner": "wasmline.consumer.backends.memory.partitioner",
    "wasmline.consumer.memory.sink": "wasmline.consumer.backends.memory.sink",
    "wasmline.consumer.memory.source": "wasmline.consumer.backends.memory.source",
    "wasmline.consumer.memory.transactions": "wasmline.consumer.backends.memory.transactions",
    "wasmline.consumer.memory.wire": "wasmline.consumer.backends.memory.output_serializer",
    "wasmline.consumer.memory.writer": "wasmline.consumer.backends.memory.transactional_producer",
    "wasmline.consumer.offset_codec": "wasmline.offset_maps.codec",
    "wasmline.consumer.offsets": "wasmline.consumer.state.offsets",
    "wasmline.consumer.owner": "wasmline.consumer.runtime.control_loop",
    "wasmline.consumer.parallel": "wasmline.consumer.parallel_consumer",
    "wasmline.consumer.progress": "wasmline.consumer.runtime.committer",
    "wasmline.consumer.shards": "wasmline.consumer.state.shards",
    "wasmline.consumer.stalls": "wasmline.consumer.runtime.stalled_partitions",
    "wasmline.consumer.work": "wasmline.consumer.state.work_manager",
    "wasmline.deploy": "wasmline.control",
    "wasmline.deploy.control": "wasmline.control.job_control_state",
    "wasmline.deploy.deployments": "wasmline.control.deployment_topic",
    "wasmline.deploy.jobs": "wasmline.control.job_topic",
    "wasmline.deploy.modules": "wasmline.control.module_store",
    "wasmline.deploy.spec": "wasmline.control.deployment_spec",
    "wasmline.deploy.standing": "wasmline.control.job_status",
    "wasmline.deploy.status": "wasmline.control.status_topic",
    "wasmline.deploy.topics": "wasmline.control.control_topics",
    "wasmline.kafka.admin": "wasmline.kafka.topics",
    "wasmline.kafka.administrator": "wasmline.kafka.bounded_admin_client",
    "wasmline.kafka.commit_metadata": "wasmline.kafka.offset_store",
    "wasmline.kafka.compacted": "wasmline.kafka.compacted_topic",
    "wasmline.kafka.failures": "wasmline.kafka.error_mapping",
    "wasmline.kafka.follower": "wasmline.kafka.topic_tailer",
    "wasmline.kafka.groups": "wasmline.kafka.consumer_groups",
    "wasmline.kafka.java": "wasmline.kafka.java_properties",
    "wasmline.kafka.librdkafka": "wasmline.kafka.librdkafka_ctypes",
    "wasmline.kafka.log_offsets": "wasmline.kafka.list_offsets",
    "wasmline.kafka.reader": "wasmline.kafka.topic_reader",
    "wasmline.kafka.record_batches": "wasmline.kafka.record_batch_headers",
    "wasmline.kafka.wire": "wasmline.kafka.protocol_types",
    "wasmline.pipeline.ends": "wasmline.job_offsets.catch_up",
    "wasmline.pipeline.function": "wasmline.pipeline.handler_loader",
    "wasmline.pipeline.group_progress": "wasmline.job_offsets.committed_offsets",
    "wasmline.pipeline.handler": "wasmline.pipeline.transform_handler",
    "wasmline.pipeline.lease": "wasmline.leases.lease",
    "wasmline.pipeline.lease_worker": "wasmline.leases.lease_worker",
    "wasmline.pipeline.lessor": "wasmline.leases.lease_planner",
    "wasmline.pipeline.part": "wasmline.job_offsets.exactly_once_batch",
    "wasmline.pipeline.renewal": "wasmline.job_offsets.offset_renewal",
    "wasmline.pipeline.retention": "wasmline.job_offsets.data_loss_check",
    "wasmline.pipeline.run_plan": "wasmline.job_offsets.start_offsets",
    "wasmline.pipeline.statuses": "wasmline.leases.lease_status",
    "wasmline.pipeline.tally": "wasmline.pipeline.batch_stats",
    "wasmline.pipeline.transform": "wasmline.pipeline.transform_runner",
    "wasmline.pipeline.window": "wasmline.pipeline.failure_window",
    "wasmline.spark.deadman": "wasmline.spark.parallel.process_watchdog",
    "wasmline.spark.exactly_once": "wasmline.spark.microbatch.exactly_once",
    "wasmline.spark.failures": "wasmline.spark.error_parsing",
    "wasmline.spark.generations": "wasmline.spark.deployment_tracker",
    "wasmline.spark.launch": "wasmline.spark.submit_wrapper",
    "wasmline.spark.lease_progress": "wasmline.spark.parallel.report",
    "wasmline.spark.leases": "wasmline.spark.parallel.lease_source",
    "wasmline.spark.metrics": "wasmline.spark.prometheus",
    "wasmline.spark.progress": "wasmline.spark.microbatch.report",
    "wasmline.spark.slots": "wasmline.spark.session",
    "wasmline.spark.stream": "wasmline.spark.stream_job",
    "wasmline.spark.task": "wasmline.spark.microbatch.task",
    "wasmline.status": "wasmline.partition_status",
    "wasmline.wasm.compilation_key": "wasmline.wasm.compilation.cache_key",
    "wasmline.wasm.compiled": "wasmline.wasm.compilation.code_cache",
    "wasmline.wasm.compiler": "wasmline.wasm.compilation.compiler",
    "wasmline.wasm.declarations": "wasmline.wasm.binary.module_types",
    "wasmline.wasm.inbox": "wasmline.wasm.columns.input_columns",
    "wasmline.wasm.instructions": "wasmline.wasm.binary.call_rewriting",
    "wasmline.wasm.joined": "wasmline.wasm.compilation.link",
    "wasmline.wasm.layout": "wasmline.wasm.columns.control_block",
    "wasmline.wasm.ledger": "wasmline.wasm.result_builder",
    "wasmline.wasm.limited_process": "wasmline.wasm.compilation.limited_process",
    "wasmline.wasm.memory": "wasmline.wasm.columns.shim_memory",
    "wasmline.wasm.names": "wasmline.wasm.binary.name_section",
    "wasmline.wasm.outbox": "wasmline.wasm.columns.output_columns",
    "wasmline.wasm.panic": "wasmline.wasm.panic_message",
    "wasmline.wasm.redpanda": "wasmline.wasm.inspection.redpanda_compat",
    "wasmline.wasm.schema_registry": "wasmline.wasm.shim.schema_registry",
    "wasmline.wasm.schemas": "wasmline.wasm.registry_schemas",
    "wasmline.wasm.setting": "wasmline.wasm.columns.static_regions",
    "wasmline.wasm.trampoline": "wasmline.wasm.shim.trampoline",
    "wasmline.wasm.unsupported": "wasmline.wasm.shim.wasi_stubs",
    "wasmline.wasm.validation": "wasmline.wasm.compilation.validation",
    "wasmline.wasm.verdict": "wasmline.wasm.traps",
    "wasmline.wasm.wasi": "wasmline.wasm.shim.wasi",
    "wasmline.wasm.wat": "wasmline.wasm.shim.wat",
    "wasmline_provider.hooks.jobs": "wasmline_provider.job_client",
    "wasmline_provider.local.keeper": "wasmline_provider.local.service_group",
    "wasmline_provider.local.rest": "wasmline_provider.local.api_client",
}
"""The current module path by the earlier one."""

NAMES: Mapping[str, Mapping[str, str]] = {
    "wasmline.build": {"bless": "accept_samples"},
    "wasmline.cli.attendance": {"Progress": "ProgressLine", "attend": "run_until_signalled"},
    "wasmline.cli.handler": {"load": "load_handler"},
    "wasmline.cli.trial": {"Trial": "RunnableTransform", "find": "resolve_transform"},
    "wasmline.consumer.assignment": {"Assignment": "PartitionLifecycle"},
    "wasmline.consumer.at_least_once": {"AtLeastOnce": "AtLeastOnceCommitter"},
    "wasmline.consumer.backend": {
        "Listener": "RebalanceListener",
        "VIRTUAL_SHARDS": "wasmline.transactional_ids:VIRTUAL_SHARDS",
        "shared_id": "wasmline.transactional_ids:shared_id",
        "transactional_id": "wasmline.transactional_ids:transactional_id",
        "virtual_shard": "wasmline.transactional_ids:virtual_shard",
        "virtual_shards": "wasmline.transactional_ids:virtual_shards",
    },
    "wasmline.consumer.confluent": {"ConfluentBackend": "KafkaBackend"},
    "wasmline.consumer.confluent.assigned": {
        "AssignedBackend": "ManualBackend",
        "AssignedSource": "ManualSource",
        "AssignedTransactions": "ManualTransactions",
        "GroupProgress": "wasmline.job_offsets.group_offsets:GroupOffsets",
        "Share": "PartitionAssignment",
        "examine": "probe_cluster",
        "lost": "wasmline.job_offsets.group_offsets:progress_lost",
        "not_held": "lease_expired",
        "refuse_lost": "wasmline.job_offsets.group_offsets:require_committed",
    },
    "wasmline.consumer.confluent.batches": {"Batches": "ProducerBatchLimiter"},
    "wasmline.consumer.confluent.door": {"GroupDoor": "LazyOffsetStore"},
    "wasmline.consumer.confluent.open_files": {"refuse_too_many": "require_file_descriptors"},
    "wasmline.consumer.confluent.sink": {"ConfluentSink": "KafkaSink", "failure": "delivery_failure"},
    "wasmline.consumer.confluent.source": {"ConfluentSource": "GroupSource", "plain": "topic_partitions"},
    "wasmline.consumer.confluent.transactions": {
        "Claim": "ProducerClaim",
        "ConfluentTransactions": "KafkaTransactions",
        "Finished": "PartitionResult",
        "Work": "CommitContents",
        "assure_safe": "require_exactly_once",
        "claim": "wasmline.kafka.transactional_producer:init_transactions",
        "connect": "wasmline.kafka.transactional_producer:transactional_producer",
        "fence": "wasmline.kafka.transactional_producer:create_fencing_producer",
        "names": "wasmline.records:partition_names",
        "refuse_unsafe": "wasmline.consumer.backends.kafka.exactly_once_probe:probe_exactly_once",
        "repeat": "wasmline.kafka.transactional_producer:retry",
    },
    "wasmline.consumer.counts": {"PartitionCounts": "PartitionCounters"},
    "wasmline.consumer.engines": {
        "AsyncioEngine": "AsyncioExecutor",
        "Engine": "Executor",
        "ThreadEngine": "ThreadExecutor",
    },
    "wasmline.consumer.errand": {"Errand": "BackgroundCall"},
    "wasmline.consumer.exactly_once": {"ExactlyOnce": "TransactionalCommitter"},
    "wasmline.consumer.letters": {"Letters": "DeadLetterBuilder"},
    "wasmline.consumer.memory": {"MemoryWriter": "MemoryTransactionalProducer"},
    "wasmline.consumer.memory.log": {"Entry": "LogEntry", "Fate": "TransactionOutcome"},
    "wasmline.consumer.memory.writer": {"MemoryWriter": "MemoryTransactionalProducer"},
    "wasmline.consumer.owner": {"Owner": "ControlLoop"},
    "wasmline.consumer.progress": {"Progress": "Committer", "progress_of": "committed_offset"},
    "wasmline.consumer.stalls": {"Stalls": "StalledPartitions"},
    "wasmline.consumer.work": {"GivenUp": "FailedRecord", "Work": "WorkManager"},
    "wasmline.deploy": {
        "BatchClaim": "DriverClaim",
        "ClaimKeeper": "ClaimWriter",
        "DeploymentLog": "DeploymentTopic",
        "JobBoard": "JobStatusReader",
        "JobControl": "JobControlState",
        "JobLog": "JobTopic",
        "JobStanding": "JobStatus",
        "StatusLog": "StatusTopic",
        "Withdrawal": "LeaseWithdrawal",
    },
    "wasmline.deploy.control": {"JobControl": "JobControlState"},
    "wasmline.deploy.deployments": {"DeploymentLog": "DeploymentTopic"},
    "wasmline.deploy.jobs": {
        "BatchClaim": "DriverClaim",
        "ClaimKeeper": "ClaimWriter",
        "JobLog": "JobTopic",
        "Withdrawal": "LeaseWithdrawal",
    },
    "wasmline.deploy.standing": {"JobBoard": "JobStatusReader", "JobStanding": "JobStatus"},
    "wasmline.deploy.status": {"StatusLog": "StatusTopic"},
    "wasmline.kafka": {"Follower": "TopicTailer", "read_slice": "read_range"},
    "wasmline.kafka.administrator": {"Administrator": "BoundedAdminClient"},
    "wasmline.kafka.commit_metadata": {
        "CommitDoor": "OffsetStore",
        "ExactDoor": "LibrdkafkaOffsetStore",
        "PlainDoor": "OffsetsOnlyStore",
        "open_door": "select_offset_store",
    },
    "wasmline.kafka.failures": {"mapped": "translate_errors"},
    "wasmline.kafka.follower": {"Follower": "TopicTailer"},
    "wasmline.kafka.log_offsets": {"log_offsets": "list_offsets"},
    "wasmline.kafka.reader": {"read_slice": "read_range"},
    "wasmline.pipeline": {"Tally": "BatchStats", "TransformPipeline": "TransformRunner"},
    "wasmline.pipeline.ends": {"Ends": "CatchUpTarget", "ends_now": "snapshot_end_offsets"},
    "wasmline.pipeline.function": {"load": "load_handler"},
    "wasmline.pipeline.group_progress": {
        "correct": "reset_offsets",
        "progress_transactions": "offset_transactions",
        "settle": "ensure_committed_offsets",
        "stable_progress": "stable_offsets",
    },
    "wasmline.pipeline.lease": {"Tenure": "LeaseValidity"},
    "wasmline.pipeline.lessor": {
        "Grant": "LeaseRound",
        "Lessor": "LeasePlanner",
        "Tenancy": "PlannerConfig",
        "refuse_more_tasks": "require_task_limit",
    },
    "wasmline.pipeline.part": {
        "Done": "CommittedRange",
        "Part": "OffsetRange",
        "Remaining": "RemainingOffsets",
        "carry_out": "process_and_commit",
        "undone": "filter_unprocessed",
    },
    "wasmline.pipeline.renewal": {"Renewal": "OffsetRenewer", "renew": "renew_offsets"},
    "wasmline.pipeline.retention": {"Retention": "DataLossCheck"},
    "wasmline.pipeline.run_plan": {
        "is_about": "matches_topic",
        "is_plain": "claim_is_authoritative",
        "late": "late_commit_offsets",
        "may_have": "is_possible_offset",
    },
    "wasmline.pipeline.statuses": {"LeaseRow": "LeaseProgress", "LeaseStatuses": "LeaseStatusReporter"},
    "wasmline.pipeline.tally": {"Tally": "BatchStats", "log_tally": "log_batch_stats"},
    "wasmline.pipeline.transform": {"TransformPipeline": "TransformRunner"},
    "wasmline.spark.deadman": {"DeadMan": "ProcessWatchdog", "watch": "watch_process", "watched": "under_watchdog"},
    "wasmline.spark.exactly_once": {
        "ExactProgress": "TransactionalBatches",
        "ExactTask": "TransactionalTask",
        "ExactWriting": "TaskTransactions",
        "planned": "planned_offset_ranges",
    },
    "wasmline.spark.failures": {"refusal": "job_error"},
    "wasmline.spark.generations": {"Generations": "DeploymentTracker"},
    "wasmline.spark.lease_progress": {"LeaseProgress": "LeaseReporter"},
    "wasmline.spark.progress": {"Progress": "MicrobatchReporter"},
    "wasmline.spark.slots": {"slots": "task_slots"},
    "wasmline.spark.stream": {"Outgrown": "PartitionsAdded"},
    "wasmline.spark.task": {"TallyParam": "BatchStatsParam"},
    "wasmline.wasm.compiled": {"CompiledCache": "CodeCache", "Loaded": "LoadedModule"},
    "wasmline.wasm.compiler": {"is_demanding": "is_expensive"},
    "wasmline.wasm.inbox": {"Inbox": "InputColumns", "Loaded": "BatchExtent"},
    "wasmline.wasm.instructions": {"with_callees": "rewrite_calls"},
    "wasmline.wasm.joined": {"joined": "link_shim"},
    "wasmline.wasm.ledger": {"Ledger": "ResultBuilder"},
    "wasmline.wasm.names": {"short_names": "truncate_names"},
    "wasmline.wasm.outbox": {"Outbox": "OutputColumns"},
    "wasmline.wasm.redpanda": {"refusals": "incompatibilities"},
    "wasmline.wasm.setting": {"furnish": "write_environment"},
    "wasmline.wasm.unsupported": {"unsupported": "wasi_stubs"},
    "wasmline.wasm.verdict": {"Death": "GuestExitInfo", "refusal": "instantiation_error", "verdict": "classify_exit"},
    "wasmline_provider.hooks.jobs": {
        "JobDesk": "JobClient",
        "RunWatch": "RunMonitor",
        "owner_of": "task_instance_key",
        "progress": "format_report",
    },
    "wasmline_provider.local.keeper": {"Keeper": "ServiceGroup"},
}
"""By earlier module path: the current name by the earlier one, ``module:name`` if it is in another module."""


def renamed(module: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module: it resolves earlier names."""

    def find(name: str) -> Any:
        today = NAMES.get(module, {}).get(name, name)
        home, _, attribute = today.rpartition(":")
        home = home or MODULES.get(module, module)
        if (home, attribute) == (module, name):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(home), attribute)

    return find


class EarlierModules(Loader):
    """Finds modules by their earlier paths: each is a module of its own that forwards to the current one."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname in MODULES else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the creation of the module to Python."""

    def exec_module(self, module: ModuleType) -> None:
        import_module(MODULES[module.__name__])
        module.__dict__["__getattr__"] = renamed(module.__name__)


def install() -> None:
    """Enable imports of earlier paths: first, as a leftover folder of them would be found as a package."""
    sys.meta_path.insert(0, EarlierModules())
