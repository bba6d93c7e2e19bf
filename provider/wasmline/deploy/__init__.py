"""Deployments and jobs as they stand in the control topics of the user's own cluster."""

from wasmline.deploy.deployments import DeploymentLog, deploy, require_topics
from wasmline.deploy.jobs import BatchClaim, JobDriver, JobLog, JobOrder
from wasmline.deploy.modules import ModuleStore
from wasmline.deploy.spec import Deployment, DeploymentSpec
from wasmline.deploy.standing import JobBoard, JobStanding, PartitionTotals
from wasmline.deploy.status import StatusLog

__all__ = [
    "BatchClaim",
    "Deployment",
    "DeploymentLog",
    "DeploymentSpec",
    "JobBoard",
    "JobDriver",
    "JobLog",
    "JobOrder",
    "JobStanding",
    "ModuleStore",
    "PartitionTotals",
    "StatusLog",
    "deploy",
    "require_topics",
]
