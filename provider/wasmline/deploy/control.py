"""What the control topics say of one job, told record by record to whoever follows them."""

from __future__ import annotations

from wasmline.deploy import topics
from wasmline.deploy.jobs import BatchClaim, JobOrder, Withdrawal
from wasmline.deploy.spec import Deployment
from wasmline.documents import decode

CONTROL_TOPICS = (topics.DEPLOYMENTS, topics.JOBS)
"""The topics to follow; each has one partition."""


class JobControl:
    """The newest order, claim, withdrawal and deployment among the records that it was told of. Pure."""

    def __init__(self, job: str, transform: str) -> None:
        self.order: JobOrder | None = None
        self.claim: BatchClaim | None = None
        self.withdrawal: Withdrawal | None = None
        self.deployment: Deployment | None = None
        self._job = job
        self._transform = transform

    def apply(self, topic: str, key: bytes | None, value: bytes | None) -> bool:
        """Take note of a record, and say whether it is about this job. Raises UnsupportedSpecVersion."""
        if key is None or value is None:
            return False
        match topic, key.decode(errors="replace"):
            case topics.DEPLOYMENTS, name if name == self._transform:
                self.deployment = decode(Deployment, value)
            case topics.JOBS, name if name == self._job:
                self.order = decode(JobOrder, value)
            case topics.JOBS, name if name == f"{self._job}/batch":
                self.claim = decode(BatchClaim, value)
            case topics.JOBS, name if name == f"{self._job}/withdrawn":
                self.withdrawal = decode(Withdrawal, value)
            case _:
                return False
        return True
