"""Differences between the specifications of two runs of a job, and which of them a living run takes over. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from wasmline.job_specs import FunctionSpec, JobSpec, StreamSpec

UPDATABLE_FIELDS: dict[str, frozenset[str]] = {
    "parallel": frozenset(
        {
            "tasks",
            "ordering",
            "max_concurrency",
            "commit_interval_ms",
            "lease_seconds",
            "trigger_interval",
            "max_offsets_per_trigger",
            "function.batch_size",
            "function.max_attempts",
            "function.retry_delay_ms",
        }
    ),
    "microbatch": frozenset(),
}
"""Fields of a stream, by its mode, that change without a restart: the next leases have them, or they have no effect."""


def changed_fields(running: JobSpec, wanted: JobSpec) -> tuple[str, ...]:
    """Return the names of the fields that differ, such as ``storage`` or ``stream.tasks``; never ``run``."""
    return tuple(sorted(_differences(running, wanted, "")))


def can_update_in_place(running: JobSpec, wanted: JobSpec) -> bool:
    """Return whether the run takes all changes over by itself."""
    changed, stream = changed_fields(running, wanted), running.stream
    if stream is None or running.is_continuous != wanted.is_continuous:
        return not changed
    return UPDATABLE_FIELDS[stream.mode].issuperset(name.removeprefix("stream.") for name in changed)


def _differences(running: Any, wanted: Any, prefix: str) -> Iterator[str]:
    for each in fields(running):
        before, after = getattr(running, each.name), getattr(wanted, each.name)
        if each.name == "run" or before == after:
            continue
        if type(before) is type(after) and isinstance(before, StreamSpec | FunctionSpec):
            yield from _differences(before, after, f"{prefix}{each.name}.")
        else:
            yield f"{prefix}{each.name}"
