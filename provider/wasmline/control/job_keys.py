"""The keys of a job's records in the job topic. A job's name has no slash."""

from __future__ import annotations


def claims_transactional_id(job: str) -> str:
    """Return the transactional.id of what needs the newest claim: the claims, and withdrawals by tasks of leases."""
    return f"wasmline.job.{job}"


def report_key(job: str, run: str) -> bytes:
    """Return the key of a run's last report; with an empty run, the beginning of the keys of the job's reports."""
    return f"{job}/report/{run}".encode()


def claim_key(job: str, topic_id: str = "") -> bytes:
    """Return the key of a job's last claim, or of its last one about an input topic that it has left since."""
    return f"{job}/batch/{topic_id}".encode() if topic_id else f"{job}/batch".encode()


def withdrawal_key(job: str) -> bytes:
    """Return the key of a job's last withdrawal of leases."""
    return f"{job}/withdrawn".encode()


def launch_key(job: str) -> bytes:
    """Return the key of a job's last launch."""
    return f"{job}/launch".encode()
