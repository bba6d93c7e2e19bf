"""Runs of each part that needs ACLs, as a user of its own, on topics, groups and jobs of its own."""

from __future__ import annotations

import collections
import json
import subprocess
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wasmline import dead_letters
from wasmline.cli import main
from wasmline.consumer import ConsumedRecord, ConsumerOptions, Delivery, Output, ParallelConsumer
from wasmline.control import (
    ClaimProducer,
    ClusterFollower,
    Deployment,
    DeploymentSpec,
    DeploymentTopic,
    DriverClaim,
    JobTopic,
    Launch,
    LaunchRequest,
    RunReader,
    StatusTopic,
    control_topics,
    deploy,
)
from wasmline.digests import digest_of
from wasmline.errors import TerminalFailure, WasmlineError
from wasmline.job_offsets.catch_up import snapshot_bounds
from wasmline.job_offsets.exactly_once_task import OffsetRange, process_and_commit
from wasmline.job_offsets.microbatch_transactions import BatchTransactions
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import ConsumerGroups, KafkaConfig, Topics, produce_all, read_range, read_to_end
from wasmline.leases.lease_planner import LeasePlanner, LeaseRound, PlannerConfig
from wasmline.leases.lease_status_reporter import unread
from wasmline.leases.lease_worker import LeaseWorker
from wasmline.lineage import RecordPosition, explain
from wasmline.local.process import wait_until
from wasmline.pipeline import BatchStats, TransformRunner
from wasmline.record_batches import record_batch
from wasmline.redrive import NewestDeadLetters
from wasmline.registry import FilesystemRegistry
from wasmline.spark.driver_claim_builder import batch_claim
from wasmline.spark.job_query import JobQuery
from wasmline.spark.launcher import Launcher
from wasmline.spark.microbatch.job import MicrobatchJob
from wasmline.spark.microbatch.job_reporter import MicrobatchReporter
from wasmline.spark.microbatch.transactional_batches import TransactionalBatches
from wasmline.spark.parallel.job import ParallelJob
from wasmline.spark.parallel.job_reporter import ParallelReporter
from wasmline.spark.run_planner import PlannedRun
from wasmline.spark.stream_job import StreamJob
from wasmline.testing.guests import OFFSET, SCRATCH, WRITE, guest, log, store
from wasmline.topic_partitions import TopicPartition
from wasmline.training import ModelRegistry
from wasmline.wasm import TransformRuntime


class Place:
    """Topics, a transform and a job, which an administrator makes for one run of a part."""

    def __init__(self, admin: KafkaConfig, folder: Path) -> None:
        self.admin = admin
        self.folder = folder
        self.unique = uuid.uuid4().hex[:8]
        self.transform, self.job, self.group = f"t-{self.unique}", f"j-{self.unique}", f"g-{self.unique}"
        self.input, self.output, self.letters = (f"{each}-{self.unique}" for each in ("in", "out", "letters"))
        topics = Topics(admin)
        for topic in (self.input, self.output, self.letters):
            topics.create(topic, 1)

    def named(self, text: str) -> str:
        """Return the name of an ACL with its placeholders replaced."""
        for name in ("transform", "job", "group", "input", "output"):
            text = text.replace(f"<{name}>", getattr(self, name))
        return text.replace("<dead-letter>", self.letters).replace("<launcher>", self.job)

    def spec(self, version: str = "1.0.0", wasm: bytes = b"") -> DeploymentSpec:
        return DeploymentSpec(
            name=self.transform, version=version, digest=digest_of(wasm or WASM), input_topic=self.input,
            output_topics=(self.output,), dead_letter_topic=self.letters,
        )  # fmt: skip

    def deploy(self) -> None:
        deploy(self.admin, self.spec(), WASM)

    def write(self, *values: bytes) -> None:
        produce_all(self.admin, self.input, [(b"key", value, [], None) for value in values])

    def order(self, **stream: Any) -> JobSpec:
        """Order a run of the job."""
        spec = StreamSpec(transform=self.transform, **{"mode": "parallel", **stream})
        job = JobSpec(job=self.job, run="run-1", storage=str(self.folder), stream=spec)
        with closing(JobTopic(self.admin)) as jobs:
            jobs.submit(job)
        return job


WASM = guest(WRITE)

LOGGING = guest(f"{log('a line')} {WRITE}")

TRAPPING = guest(f"(if (i64.eqz (i64.sub (i64.load (i32.const {OFFSET})) (i64.const 1))) (then (unreachable))) {WRITE}")
"""Fails at offset 1."""


def command(config: KafkaConfig, *arguments: str) -> None:
    """Run a command of ``wasmline`` as a user; raise its error."""
    settings = [each for name, value in config.properties.items() for each in ("-X", f"{name}={value}")]
    try:
        main([*arguments, *settings], standalone_mode=False)
    except Exception as error:
        if isinstance(error.__cause__, WasmlineError):
            raise error.__cause__ from None
        raise


def creator(place: Place, config: KafkaConfig) -> None:
    control_topics.ensure(config)


def prepare_creator(place: Place) -> None:
    """Delete a control topic, as one that an earlier release did not have."""
    if Topics(place.admin).exists(control_topics.LOGS):
        Topics(place.admin).delete([control_topics.LOGS])


def prepare_pauser(place: Place) -> None:
    place.deploy()


def pauser(place: Place, config: KafkaConfig) -> None:
    with closing(DeploymentTopic(config)) as deployments:
        assert deployments.pause_generation(deployments.get(place.transform), "at fault")


def deployer(place: Place, config: KafkaConfig) -> None:
    wasm = guest(f"{WRITE} {store(SCRATCH, place.unique.encode())}")  # no other deployment has stored it
    deploy(config, place.spec(wasm=wasm), wasm)
    deploy(config, place.spec("1.1.0", wasm), wasm)
    command(config, "pause", place.transform)
    command(config, "resume", place.transform)
    command(config, "rollback", place.transform, "--reason", "a test", "--yes")
    command(config, "history", place.transform)


def prepare_observer(place: Place) -> None:
    Topics(place.admin).delete([control_topics.DEPLOYMENTS])  # `list` describes the inputs of all of them
    control_topics.ensure(place.admin)
    place.deploy()
    place.write(b"1")
    place.order()
    ConsumerGroups(place.admin).commit_offsets(f"wasmline.{place.job}", {TopicPartition(place.input, 0): 0})
    with closing(StatusTopic(place.admin)) as statuses:
        statuses.write([unread(place.order(), None, place.input, 0)])


def observer(place: Place, config: KafkaConfig) -> None:
    command(config, "list")
    command(config, "history", place.transform)
    command(config, "jobs")
    command(config, "status", place.job, "--json")
    command(config, "progress", "show", place.job)


def prepare_page(place: Place) -> None:
    prepare_observer(place)
    prepare_logs(place)
    headers = dead_letters.coordinates(TopicPartition(place.input, 0), 0)
    produce_all(place.admin, place.letters, [(b"key", b"1", headers, None)])
    produce_all(place.admin, place.output, [(b"key", b"1", [], None)])


def page(place: Place, config: KafkaConfig) -> None:
    with closing(ClusterFollower(config)) as follower:
        follower.poll()
        assert wait_until(lambda: _has_ends(follower, place), 60)
        if follower.ends_error is not None:
            raise follower.ends_error
    assert NewestDeadLetters(config, place.letters, 1, convert=lambda letter: letter).read()
    registry, models = FilesystemRegistry(str(place.folder)), ModelRegistry(str(place.folder))
    for topic, chain in ((place.letters, [place.letters, place.input]), (place.output, [place.output])):
        position = RecordPosition(topic=topic, partition=0, offset=0)
        found = explain(config, position, registry=registry, models=models)
        assert [each.position.topic for each in found] == chain, found[-1].problems


def _has_ends(follower: ClusterFollower, place: Place) -> bool:
    follower.poll()
    return follower.ends_error is not None or follower.state.partition_count(place.input) == 1


def prepare_logs(place: Place) -> None:
    with closing(StatusTopic(place.admin)) as statuses:
        statuses.write_logs(place.transform, ["a line"])


def logs(place: Place, config: KafkaConfig) -> None:
    command(config, "logs", place.transform)


def prepare_operator(place: Place) -> None:
    place.deploy()
    place.write(b"1")
    job = place.order(delivery="exactly_once")
    with closing(JobTopic(place.admin)) as jobs:
        jobs.write_report(JobReport.now(job.job, job.run, JobState.RUNNING, "runs"))
    topic = Topics(place.admin).describe(place.input)
    claim = DriverClaim(
        run=job.run, mode="parallel", driver="driver", checkpoint="c", batch_id=1, deployment=None,
        topic=place.input, topic_id=topic.id, offsets={0: 0}, partitions=1,
    )  # fmt: skip
    with closing(ClaimProducer(place.admin, job.job)) as claims:
        claims.claim(claim)
    ConsumerGroups(place.admin).commit_offsets(job.group, {TopicPartition(place.input, 0): 0})


def operator(place: Place, config: KafkaConfig) -> None:
    command(config, "withdraw", place.job, "--yes", "--reason", "a test")
    with closing(JobTopic(place.admin)) as jobs:
        jobs.write_report(JobReport.now(place.job, "run-1", JobState.STOPPED, "ended"))
    command(config, "stop", place.job, "--yes")
    command(config, "progress", "set", place.job, "--to", "end", "--reason", "a test", "--yes")
    command(config, "delete", place.job, "--yes")


def prepare_orchestrator(place: Place) -> None:
    place.deploy()


def orchestrator(place: Place, config: KafkaConfig) -> None:
    spec = StreamSpec(transform=place.transform, mode="parallel")
    job = JobSpec(job=place.job, run="run-1", storage=str(place.folder), stream=spec)
    with closing(JobTopic(config)) as jobs:
        jobs.submit(job)
        jobs.write_report(JobReport.now(job.job, job.run, JobState.FAILED, "did not start"))
        jobs.stop(job.job, job.run, by="system")
    with closing(RunReader(config)) as reader:
        assert reader.read([(job.job, job.run)])


def prepare_launcher(place: Place) -> None:
    spec = StreamSpec(transform=place.transform, mode="parallel", trigger_interval="1 second")
    job = JobSpec(job=place.job, run="run-1", storage=str(place.folder), stream=spec)
    with closing(JobTopic(place.admin)) as jobs:
        jobs.submit(job, launch=LaunchRequest(launcher=place.job, arguments=()))


def launcher(place: Place, config: KafkaConfig) -> None:
    started: list[str] = []

    def start(request: LaunchRequest, launch: Launch, job: str) -> subprocess.Popen[bytes]:
        started.append(job)
        stopping.set()
        process = subprocess.Popen(["true"])
        process.wait()
        return process

    stopping = threading.Event()
    with closing(Launcher(config, place.job, place.folder, start)) as service:
        service.run(stopping)
    assert started == [place.job]


def _fill_letters(place: Place, letters: int = 1) -> None:
    """Write dead letters of the input's offsets from 0 on."""
    origin = dead_letters.origin(transform=f"{place.transform}@1.0.0", digest="sha256:aa")
    for offset in range(letters):
        headers = [
            *dead_letters.failure(error="GuestTrap", reason="no"),
            *dead_letters.provenance(origin, TopicPartition(place.input, 0), offset),
        ]
        produce_all(place.admin, place.letters, [(b"key", b"value", headers, None)])


def prepare_redriver_to_source(place: Place) -> None:
    _fill_letters(place)


def prepare_redriver_through(place: Place) -> None:
    deploy(place.admin, place.spec(wasm=TRAPPING), TRAPPING)
    _fill_letters(place, 2)


def redriver_to_source(place: Place, config: KafkaConfig) -> None:
    command(config, "dead-letters", "list", place.letters)
    command(config, "dead-letters", "redrive", place.letters, "--to-source", "--reason", "a test", "--yes")
    assert len(list(read_to_end(place.admin, place.input))) == 1


def redriver_through(place: Place, config: KafkaConfig) -> None:
    name = place.transform
    with suppress(SystemExit):  # its status says that one has failed again
        command(config, "dead-letters", "redrive", place.letters, "--through", name, "--reason", "a test", "--yes")
    assert len(list(read_to_end(place.admin, place.output))) == 1


def prepare_consumer(place: Place) -> None:
    place.write(b"good", b"bad")


def _consume(place: Place, config: KafkaConfig, delivery: Delivery) -> None:
    left = {b"good", b"bad"}

    def handle(record: ConsumedRecord) -> Output:
        left.discard(record.value or b"")
        if not left:
            running.stop()
        if record.value == b"bad":
            raise TerminalFailure("it is bad")
        return Output(place.output, record.value)

    options = ConsumerOptions(
        topics=(place.input,), group_id=place.group, dead_letter_topic=place.letters, delivery=delivery,
        kafka=config.properties,
    )  # fmt: skip
    running = ParallelConsumer(options)
    running.run(handle)
    found = {each.value() for topic in (place.output, place.letters) for each in read_to_end(place.admin, topic)}
    assert found == {b"good", b"bad"}
    assert ConsumerGroups(place.admin).committed(place.group, place.input) == {0: 2}


def consumer(place: Place, config: KafkaConfig) -> None:
    _consume(place, config, Delivery.AT_LEAST_ONCE)


def consumer_exactly_once(place: Place, config: KafkaConfig) -> None:
    _consume(place, config, Delivery.EXACTLY_ONCE)


class EndedQuery:
    """A query whose work was done when it was started."""

    isActive = False  # noqa: N815 - Spark's name
    status = {"isTriggerActive": False}

    def __init__(self, progress: list[Any]) -> None:
        self.recentProgress = progress

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        return True


class Foreground(JobQuery):
    """A job's query without Spark: ``work`` does what its tasks do, and returns Spark's progress."""

    def __init__(self, reporter: MicrobatchReporter | ParallelReporter, work: Callable[[], list[Any]]) -> None:
        self._reporter = reporter
        self._work = work

    def start(self) -> StreamingQuery:
        return cast(StreamingQuery, EndedQuery(self._work()))

    def poll(self, query: StreamingQuery) -> bool:
        if isinstance(self._reporter, MicrobatchReporter):
            return self._reporter.follow(query.recentProgress)
        return self._reporter.follow(paused=False)

    def report(self, state: JobState, message: str = "", error: str | None = None) -> JobReport:
        return self._reporter.report(state, message, error)

    def before_stop(self) -> None:
        """It has ended."""

    def raise_cause(self, query: StreamingQuery, exception: StreamingQueryException) -> None:
        raise exception

    def certain_offsets(self, newest: DriverClaim) -> Mapping[int, int]:
        return newest.ends


class Parallel(ParallelJob):
    """A driver in parallel mode, whose lease is worked on by itself."""

    def _begin(self, run: PlannedRun[Deployment | None]) -> JobQuery:  # type: ignore[override]
        context = self._context
        bounds = snapshot_bounds(context.config, [run.topic.name])
        reporter = ParallelReporter(context.job, run.topic.name, context.write_report, context.statuses)
        reporter.begin(run.deployment, run.plan.offsets, Topics(context.config).end_offsets(run.topic.name))

        def work() -> list[Any]:
            planned = PlannerConfig(
                job=context.job.job, run=context.job.run, driver=context.driver, checkpoint=run.plan.checkpoint,
                topic=run.topic.name, topic_id=run.topic.id, offsets=run.plan.offsets, slots=1,
                bounds={each.partition: found for each, found in bounds.items()},
                keeps_maps=run.prepared.keeps_maps, is_renewed=run.is_renewed,
            )  # fmt: skip
            with closing(LeasePlanner(context.config, planned, context.stream.transform)) as planner:
                for lease in planner.leases(planner.next(LeaseRound())):
                    collections.deque(LeaseWorker(context.config, lease).run(), 0)
            return []

        return Foreground(reporter, work)


class Progress(dict[str, Any]):
    """A StreamingQueryProgress."""

    @property
    def json(self) -> str:
        return json.dumps(self)


class Microbatch(MicrobatchJob):
    """A driver of micro-batches, whose batch is one of its own making."""

    def _begin(self, run: PlannedRun[Deployment]) -> JobQuery:  # type: ignore[override]
        context = self._context
        driver = context.driver if context.has_authoritative_claims else None
        reporter = MicrobatchReporter(
            context.config, context.job, run.deployment, context.jobs, context.write_report, context.statuses,
            begins=run.plan.offsets, driver=driver,
        )  # fmt: skip
        part = OffsetRange(source=TopicPartition(run.topic.name, 0), begin=0, end=2)
        output = run.deployment.spec.output_topics[0]

        def work() -> list[Any]:
            context.claims.claim(batch_claim(context, run, 0, run.deployment, {0: 0}, {0: 2}))
            read = list(read_range(context.config, run.topic.name, {0: (0, 2)}))
            if context.has_authoritative_claims:
                produce_all(context.config, output, [(each.key(), each.value(), [], None) for each in read])
            else:
                self._transact(run, part, read)
            reporter.batch(0, run.deployment, BatchStats(logs=["a line"]))
            offsets = [{run.topic.name: {"0": end}} for end in (0, 2, 2)]
            sources = dict(zip(("startOffset", "endOffset", "latestOffset"), offsets, strict=True))
            duration = {"addBatch": 1, "triggerExecution": 1}
            time = "2026-11-26T16:00:00Z"
            return [Progress(batchId=0, durationMs=duration, timestamp=time, sources=[sources])]

        return Foreground(reporter, work)

    def _transact(self, run: PlannedRun[Deployment], part: OffsetRange, read: list[Any]) -> None:
        context = self._context
        batches = TransactionalBatches(
            context.config, context.job, run.topic.name, run.plan, run.mapped, context.claims.require_newest,
            is_renewed=run.is_renewed, max_renewal_interval_s=60,
        )  # fmt: skip
        batches.check([part])
        instance = (
            TransformRuntime().compile(WASM).instantiate(run.deployment.spec.context(), run.deployment.spec.limits())
        )
        runner = TransformRunner(run.deployment, instance, BatchStats(), {})
        rows = record_batch(
            keys=[each.key() for each in read], values=[each.value() for each in read], headers=[[] for _ in read],
            timestamps=[each.timestamp()[1] for each in read], partitions=[0] * len(read),
            offsets=[each.offset() for each in read],
        )  # fmt: skip
        transactions = BatchTransactions(
            context.config, context.job.group, context.job.transactional_id, {}, run.deployment.spec.topics[1:]
        )
        with closing(transactions), closing(instance):
            process_and_commit([part], lambda _: [rows], transactions, runner.run_placed)


def _drive(place: Place, config: KafkaConfig, kind: type[StreamJob[Any]], **stream: Any) -> None:
    order = place.order(**stream)
    assert order.stream is not None
    spark = SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl=None))  # the query is not Spark's
    report = kind(cast(SparkSession, spark), config, order, order.stream).run()
    assert report.state is JobState.SUCCEEDED, report
    assert len(list(read_to_end(place.admin, place.output))) == 2


def prepare_driver(place: Place) -> None:
    deploy(place.admin, place.spec(wasm=LOGGING), LOGGING)
    place.write(b"1", b"2")


def microbatch(place: Place, config: KafkaConfig) -> None:
    _drive(place, config, Microbatch, mode="microbatch")


def microbatch_exactly_once(place: Place, config: KafkaConfig) -> None:
    _drive(place, config, Microbatch, mode="microbatch", delivery="exactly_once")


def parallel(place: Place, config: KafkaConfig) -> None:
    _drive(place, config, Parallel, mode="parallel")


def parallel_exactly_once(place: Place, config: KafkaConfig) -> None:
    _drive(place, config, Parallel, mode="parallel", delivery="exactly_once")


def prepare_nothing(place: Place) -> None:
    """Leave the place as it is."""


Step = Callable[[Place], None]
Run = Callable[[Place, KafkaConfig], None]

RUNS: Mapping[str, tuple[Step, Run]] = {
    "creator of the control topics": (prepare_creator, creator),
    "deployer": (prepare_nothing, deployer),
    "observer": (prepare_observer, observer),
    "page": (prepare_page, page),
    "log reader": (prepare_logs, logs),
    "orchestrator": (prepare_orchestrator, orchestrator),
    "operator": (prepare_operator, operator),
    "launcher": (prepare_launcher, launcher),
    "redriver, to the source": (prepare_redriver_to_source, redriver_to_source),
    "redriver, through a transform": (prepare_redriver_through, redriver_through),
    "consumer, at least once": (prepare_consumer, consumer),
    "consumer, exactly once": (prepare_consumer, consumer_exactly_once),
    "driver of micro-batches, at least once": (prepare_driver, microbatch),
    "driver of micro-batches, exactly once": (prepare_driver, microbatch_exactly_once),
    "driver in parallel mode, at least once": (prepare_driver, parallel),
    "driver in parallel mode, exactly once": (prepare_driver, parallel_exactly_once),
    "driver that pauses a deployment at fault": (prepare_pauser, pauser),
}
"""By the names of PARTS: what an administrator does before, and what the part does. A driver runs its own code without
Spark: its tasks' work is done in this process."""
