"""Deployments and jobs as they stand in the control topics of the user's own cluster."""

from wasmline.deploy.control import CONTROL_TOPICS, JobControl
from wasmline.deploy.deployments import DeploymentLog, deploy, require_topics
from wasmline.deploy.jobs import BatchClaim, ClaimKeeper, JobDriver, JobLog, JobOrder, Withdrawal
from wasmline.deploy.modules import ModuleStore
from wasmline.deploy.spec import Deployment, DeploymentSpec
from wasmline.deploy.standing import JobBoard, JobStanding, PartitionTotals
from wasmline.deploy.status import StatusLog

__all__ = [
    "CONTROL_TOPICS",
    "BatchClaim",
    "ClaimKeeper",
    "Deployment",
    "DeploymentLog",
    "DeploymentSpec",
    "JobBoard",
    "JobControl",
    "JobDriver",
    "JobLog",
    "JobOrder",
    "JobStanding",
    "ModuleStore",
    "PartitionTotals",
    "StatusLog",
    "Withdrawal",
    "deploy",
    "require_topics",
]
