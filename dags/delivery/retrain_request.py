"""Says which records a run of the retraining takes, and why it was started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Boundary = str | dict[str, int]
"""``previous``, ``beginning``, ``now``, a date and time with its UTC offset, or offsets by partition."""

EVENT_MEMBERS = frozenset({"until", "why", "reasons", "observed_ms"})
"""Members of a RetrainTrigger's payload that a run needs."""


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
    payloads: Sequence[Any],
    params: Mapping[str, Any],
) -> RetrainRequest:
    """Return the request of a run: of an event, of an interval of the timetable or of a backfill, or of the form.

    A scheduled run takes what is new up to its interval's end, so that an interval that was missed is not lost; each
    run of a backfill takes its own interval. An event by hand, or of another trigger, has no offsets of the training's
    topic and no reasons: its run takes what is new now.
    """
    reasoned = [each for each in payloads if isinstance(each, Mapping) and each.keys() >= EVENT_MEMBERS]
    if reasoned:
        newest = max(reasoned, key=lambda each: int(each["observed_ms"]))
        return RetrainRequest(
            since="previous", until=newest["until"], why=newest["why"], reasons=list(newest["reasons"])
        )
    if run_type in ("scheduled", "backfill") and start and end:
        since = "previous" if run_type == "scheduled" else start.isoformat()
        return RetrainRequest(since=since, until=end.isoformat(), why=f"{run_type}: {start} to {end}", reasons=[])
    if run_type == "asset_triggered":
        return RetrainRequest(since="previous", until="now", why="an asset event without reasons", reasons=[])
    since = params["since_time"] or params["since"]
    return RetrainRequest(since=since, until="now", why="asked for in the form", reasons=[])


def skip_text(skipped: Mapping[str, Any] | None, since: Boundary | None) -> str:
    """Return why nothing was trained, with the count, and which run takes the records."""
    reason = skipped["reason"] if skipped else "too few deliveries are new"
    taken = "the next run takes them too" if since == "previous" else "the form takes them, since the topic's beginning"
    return f"{reason}. The live model stays, and {taken}"
