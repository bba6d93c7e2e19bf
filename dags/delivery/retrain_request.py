"""Says which records a run of the retraining takes, and why it was started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Boundary = str | dict[str, int]
"""``previous``, ``beginning``, ``now``, a date and time with its UTC offset, or offsets by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainRequest:
    """A slice from ``since`` to ``until``, and the reasons of the run with their figures."""

    since: Boundary
    until: Boundary
    why: str
    reasons: list[dict[str, Any]]


def retrain_request(
    run_type: str,
    *,
    start: datetime | None,
    end: datetime | None,
    payloads: Sequence[Mapping[str, Any]],
    params: Mapping[str, Any],
) -> RetrainRequest:
    """Return the request of a run: of an event, of an interval of the timetable or of a backfill, or of the form.

    A scheduled run takes what is new up to its interval's end, so that an interval that was missed is not lost; each
    run of a backfill takes its own interval.
    """
    if payloads:
        newest = max(payloads, key=lambda each: int(each["observed_ms"]))
        return RetrainRequest(
            since="previous", until=newest["until"], why=newest["why"], reasons=list(newest["reasons"])
        )
    if run_type in ("scheduled", "backfill") and start and end:
        since = "previous" if run_type == "scheduled" else start.isoformat()
        return RetrainRequest(since=since, until=end.isoformat(), why=f"{run_type}: {start} to {end}", reasons=[])
    since = params["since_time"] or params["since"]
    return RetrainRequest(since=since, until="now", why="asked for in the form", reasons=[])
