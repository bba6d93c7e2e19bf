"""Decides how a job's run is ensured: adopt the live one, change its order, restart it, or start one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from wasmline.errors import JobBusy
from wasmline_provider.stream_changes import can_update_in_place, changed_fields

if TYPE_CHECKING:
    from wasmline.control import JobOrder
    from wasmline.job_specs import JobReport, JobSpec

Action = Literal["started", "adopted", "updated", "restarted", "left_stopped"]
"""How a run was ensured. ``updated``: the live run takes the change over; ``left_stopped``: a user had stopped it."""

SUBMIT_SETTINGS = "submit settings"
"""The name of a change of the settings with which a driver is submitted, such as Spark's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRun:
    """The current order of a job, whether its run has a driver or gets one, and its report before that was decided."""

    order: JobOrder
    is_live: bool
    report: JobReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An action, and the changed fields that are its reason."""

    action: Action
    changed: tuple[str, ...] = ()


def decide(
    current: CurrentRun | None,
    spec: JobSpec,
    owner: str,
    submit_digest: str,
    *,
    restart_stopped: bool,
    earlier_run: str = "",
) -> Decision:
    """Return how a run of ``spec`` is ensured; see JobClient.ensure. Raises JobBusy."""
    if current is None:
        return Decision(action="started")
    order = current.order
    if order.is_stopped_by_user and (not restart_stopped or order.spec.run == earlier_run):
        return Decision(action="left_stopped")
    if not current.is_live:
        return Decision(action="started")
    changed, updatable = changed_fields(order.spec, spec), can_update_in_place(order.spec, spec)
    if order.submit_digest not in ("", submit_digest):
        changed, updatable = (*changed, SUBMIT_SETTINGS), False
    if not (order.spec.is_continuous and spec.is_continuous):
        _require_own(order.spec, owner)
    if order.wanted == "stopped":
        return Decision(action="restarted", changed=changed)
    if not changed:
        return Decision(action="adopted")
    return Decision(action="updated" if updatable else "restarted", changed=changed)


def _require_own(running: JobSpec, owner: str) -> None:
    if not running.run.startswith(f"{owner}-"):
        raise JobBusy(
            f"job {running.job} runs already, as {running.run}, for another task, and ends by itself: wait for its "
            f"end, or stop it with wasmline stop {running.job}",
            job=running.job,
            run=running.run,
        )
