"""Deployments and jobs: their state in the control topics of the user's own cluster."""

from wasmline.control.cluster_follower import ClusterFollower
from wasmline.control.cluster_state import ClusterState, JobView
from wasmline.control.dead_runs import DeadRun, DeadRunDetector
from wasmline.control.deployment_health import DeploymentHealth, read_deployment_health
from wasmline.control.deployment_history import (
    NO_CAUSE,
    ChangeCause,
    DeploymentEvent,
    GenerationHistory,
    GenerationOffsets,
    GenerationStart,
    HistoryTopic,
)
from wasmline.control.deployment_rollback import (
    DeploymentRollbackPlan,
    find_deploy,
    find_rollback,
    plan_deployment_rollback,
    plan_rollback_of,
    roll_back_deployment,
)
from wasmline.control.deployment_spec import Deployment, DeploymentSpec, ModuleOffsets
from wasmline.control.deployment_topic import DeploymentTopic, deploy, read_deployments, require_topics
from wasmline.control.driver_records import DriverRecords
from wasmline.control.guest_logs import GuestLogLine, GuestLogReader
from wasmline.control.job_actions import EndedRun, delete_job, stop_job, withdraw_leases
from wasmline.control.job_control_state import CONTROL_TOPICS, JobControlState
from wasmline.control.job_history import JobEvent, find_job_event, job_event_record, read_job_events
from wasmline.control.job_status import JobStatus, JobStatusReader, PartitionTotals
from wasmline.control.job_topic import (
    ClaimProducer,
    ClaimWriter,
    DriverClaim,
    JobOrder,
    JobOverview,
    JobTopic,
    LeaseWithdrawal,
    StoppedBy,
    fenced_error,
)
from wasmline.control.launch_request import LaunchRequest
from wasmline.control.launcher_topic import Launch, LauncherClaim, LauncherStatus, require_launcher
from wasmline.control.lease_withdrawals import withdraw_lease
from wasmline.control.minute_lines import LineSample
from wasmline.control.module_history import ModuleEvent, read_module_events
from wasmline.control.module_pruning import (
    ModulePruning,
    ModulePruningPlan,
    StoredModules,
    plan_module_pruning,
    prune_modules,
    read_modules,
)
from wasmline.control.module_references import ModuleReference, ModuleReferences
from wasmline.control.module_store import ModuleChunks, ModuleStore
from wasmline.control.partition_stalls import PartitionStall, partition_stalls
from wasmline.control.redrive_topic import (
    DeadLetterSelection,
    Redrive,
    RedrivenOffsets,
    RedriveState,
    RedriveTopic,
    RedriveWriter,
)
from wasmline.control.retrain_status import (
    RetrainCheck,
    RetrainStatus,
    RetrainStatusTopic,
    model_of_retrain_status,
    retrain_status_key,
)
from wasmline.control.run_liveness import is_live, live_jobs
from wasmline.control.run_reader import RunReader, RunReading
from wasmline.control.status_topic import StatusTopic, left_offsets

__all__ = [
    "CONTROL_TOPICS",
    "NO_CAUSE",
    "ChangeCause",
    "ClaimProducer",
    "ClaimWriter",
    "ClusterFollower",
    "ClusterState",
    "DeadLetterSelection",
    "DeadRun",
    "DeadRunDetector",
    "Deployment",
    "DeploymentEvent",
    "DeploymentHealth",
    "DeploymentRollbackPlan",
    "DeploymentSpec",
    "DeploymentTopic",
    "DriverClaim",
    "DriverRecords",
    "EndedRun",
    "GenerationHistory",
    "GenerationOffsets",
    "GenerationStart",
    "GuestLogLine",
    "GuestLogReader",
    "HistoryTopic",
    "JobControlState",
    "JobEvent",
    "JobOrder",
    "JobOverview",
    "JobStatus",
    "JobStatusReader",
    "JobTopic",
    "JobView",
    "Launch",
    "LaunchRequest",
    "LauncherClaim",
    "LauncherStatus",
    "LeaseWithdrawal",
    "LineSample",
    "ModuleChunks",
    "ModuleEvent",
    "ModuleOffsets",
    "ModulePruning",
    "ModulePruningPlan",
    "ModuleReference",
    "ModuleReferences",
    "ModuleStore",
    "PartitionStall",
    "PartitionTotals",
    "Redrive",
    "RedriveState",
    "RedriveTopic",
    "RedriveWriter",
    "RedrivenOffsets",
    "RetrainCheck",
    "RetrainStatus",
    "RetrainStatusTopic",
    "RunReader",
    "RunReading",
    "StatusTopic",
    "StoppedBy",
    "StoredModules",
    "delete_job",
    "deploy",
    "fenced_error",
    "find_deploy",
    "find_job_event",
    "find_rollback",
    "is_live",
    "job_event_record",
    "left_offsets",
    "live_jobs",
    "model_of_retrain_status",
    "partition_stalls",
    "plan_deployment_rollback",
    "plan_module_pruning",
    "plan_rollback_of",
    "prune_modules",
    "read_deployment_health",
    "read_deployments",
    "read_job_events",
    "read_module_events",
    "read_modules",
    "require_launcher",
    "require_topics",
    "retrain_status_key",
    "roll_back_deployment",
    "stop_job",
    "withdraw_lease",
    "withdraw_leases",
]
