"""Deployments and jobs: their state in the control topics of the user's own cluster."""

from wasmline.control.deployment_log import DeploymentLog, deploy, require_topics
from wasmline.control.deployment_spec import Deployment, DeploymentSpec
from wasmline.control.job_log import ClaimWriter, DriverClaim, JobDriver, JobLog, JobOrder, LeaseWithdrawal
from wasmline.control.job_state import CONTROL_TOPICS, JobControlState
from wasmline.control.job_status import JobStatus, JobStatusReader, PartitionTotals
from wasmline.control.module_store import ModuleStore
from wasmline.control.status_topic import StatusTopic

__all__ = [
    "CONTROL_TOPICS",
    "ClaimWriter",
    "Deployment",
    "DeploymentLog",
    "DeploymentSpec",
    "DriverClaim",
    "JobControlState",
    "JobDriver",
    "JobLog",
    "JobOrder",
    "JobStatus",
    "JobStatusReader",
    "LeaseWithdrawal",
    "ModuleStore",
    "PartitionTotals",
    "StatusTopic",
    "deploy",
    "require_topics",
]
