"""Decides whether and when a failed run is started again."""

from __future__ import annotations

from dataclasses import dataclass

from wasmline import errors
from wasmline.job_specs import JobReport, JobState

TRANSIENT_ERRORS = frozenset(
    {
        "ClientClosed",
        "Conflict",  # a new try reads the other writer's result first
        "ConsumerError",
        "GroupInUse",
        "HandlerBroken",
        "HandlerStuck",
        "InstanceClosed",
        "JobFailed",  # of a supervisor: its driver was killed
        "KafkaError",  # itself: an error of the cluster that has no class of its own
        "PortInUse",  # of the driver before, which has not ended yet
        "ProducerFenced",
        "ServiceFailed",
    }
)
"""Errors that a repetition of the same call does not cure, and a new process may."""

RESTART_ERRORS = frozenset({"DeploymentPaused", "HangingTransaction", "NotAuthorized", "ReleaseMismatch"})
"""Errors that a later start of a continuous stream may be without: deployments are resumed, clusters mended, and
releases installed on one machine after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """The delays between restarts of one run, in seconds: each twice the one before, up to ``max_delay_s``.

    A driver that sends heartbeats for ``healthy_s`` resets them.
    """

    first_delay_s: float = 1.0
    max_delay_s: float = 300.0
    healthy_s: float = 120.0

    def delay_s(self, attempts: int) -> float:
        """Return the pause after ``attempts`` starts without a healthy driver."""
        doublings = min(max(0, attempts - 1), 32)
        return min(self.max_delay_s, self.first_delay_s * 2.0**doublings)


DEFAULT_RESTARTS = RestartPolicy()


def is_transient(error: str | None) -> bool:
    """Return whether a new start may succeed after an error of this class name.

    Names that are not Wasmline's are those of Spark, Java and Python: they may pass.
    """
    if not error or error in TRANSIENT_ERRORS:
        return True
    known = getattr(errors, error, None)
    if not (isinstance(known, type) and issubclass(known, errors.WasmlineError)):
        return True
    return known.retryable


def is_restartable(report: JobReport) -> bool:
    """Return whether a run with this last report failed by an error that may pass."""
    return report.state is JobState.FAILED and (report.error in RESTART_ERRORS or is_transient(report.error))
