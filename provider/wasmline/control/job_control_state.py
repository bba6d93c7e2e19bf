"""The state of one job, folded from the records of the control topics."""

from __future__ import annotations

from wasmline.control import control_topics
from wasmline.control.deployment_spec import Deployment
from wasmline.control.job_keys import claim_key, withdrawal_key
from wasmline.control.job_topic import DriverClaim, JobOrder, LeaseWithdrawal
from wasmline.documents import decode

CONTROL_TOPICS = (control_topics.DEPLOYMENTS, control_topics.JOBS)
"""The topics to follow; each has one partition."""


class JobControlState:
    """The newest order, claim, withdrawal and deployment among the applied records. Pure.

    ``task_limits`` are the limits of tasks that drivers have written with their withdrawals.
    """

    def __init__(self, job: str, transform: str) -> None:
        self.order: JobOrder | None = None
        self.claim: DriverClaim | None = None
        self.withdrawal: LeaseWithdrawal | None = None
        self.deployment: Deployment | None = None
        self.task_limits: dict[str, int] = {}
        self._job = job
        self._transform = transform

    def apply(self, topic: str, key: bytes | None, value: bytes | None) -> bool:
        """Apply a record; return whether it concerns this job. Raises UnsupportedSpecVersion."""
        if key is None or value is None:
            return False
        match topic, key.decode(errors="replace"):
            case control_topics.DEPLOYMENTS, name if name == self._transform:
                self.deployment = decode(Deployment, value)
            case control_topics.JOBS, name if name == self._job:
                self.order = decode(JobOrder, value)
            case control_topics.JOBS, _ if key == claim_key(self._job):
                self.claim = decode(DriverClaim, value)
            case control_topics.JOBS, _ if key == withdrawal_key(self._job):
                self.withdrawal = decode(LeaseWithdrawal, value)
                if self.withdrawal.max_tasks is not None:
                    self.task_limits[self.withdrawal.driver] = self.withdrawal.max_tasks
            case _:
                return False
        return True
