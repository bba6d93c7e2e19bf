"""The progress of a job as a document for users."""

from __future__ import annotations

from typing import Any

from wasmline.job_offsets.progress_change import JobProgress


def progress_document(found: JobProgress) -> dict[str, Any]:
    """Return a job's progress as JSON-able values, with the lag of each partition in offsets; None if unknown."""
    stream = found.order.spec.stream
    return {
        "job": found.order.spec.job,
        "topic": found.topic.name,
        "mode": stream.mode if stream else None,
        "delivery": stream.delivery if stream else None,
        "problem": found.problem,
        "partitions": [
            {
                "partition": partition,
                "next": (offset := found.offsets.get(partition)),
                "committed": found.committed.get(partition),
                "start": begin,
                "end": found.topic.ends[partition],
                "lag": None if offset is None else max(0, found.topic.ends[partition] - offset),
            }
            for partition, begin in sorted(found.topic.begins.items())
        ],
    }
