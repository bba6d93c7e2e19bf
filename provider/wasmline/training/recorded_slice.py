"""One slice of a topic, as stored in a registry's slice log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from wasmline.errors import InvalidArtifact, InvalidTrainSpec
from wasmline.job_specs import SliceRequest
from wasmline.offset_ranges import OffsetRanges, count_offsets, require_ranges
from wasmline.registry.oci_manifest import decoded, encoded
from wasmline.training.stored_documents import stored_document

MAX_BYTES = 256 * 1024
"""Maximum size of a slice as JSON, that of a few thousand partitions: all slices of a model are read at once."""

Offsets = dict[str, int]
"""An offset by partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSlice:
    """The offsets that were new to a model in one run.

    ``topic_id`` distinguishes a topic from one recreated with its name. ``beginning`` are the topic's beginning offsets
    when the slice was decided: windows of its run have none before them, so that they stay the same. ``times`` are the
    offsets of the times in ``request``; every later request takes them for these times, so that slices of intervals
    touch. ``forgotten`` offsets were asked for, and had been removed by retention. Raises ValueError.
    """

    model: str
    number: int
    topic: str
    topic_id: str
    offsets: OffsetRanges
    beginning: Offsets
    request: SliceRequest
    decided_ms: int
    times: dict[str, Offsets]
    forgotten: int = 0
    spec_version: Literal[1] = 1

    def __post_init__(self) -> None:
        require_ranges(self.offsets)
        for offsets in (self.beginning, *self.times.values()):
            require_ranges({partition: (0, offset) for partition, offset in offsets.items()})
        if not count_offsets(self.offsets):
            raise ValueError("it has no offsets")
        if self.forgotten < 0:
            raise ValueError(f"it forgot {self.forgotten} offsets")


def slice_document(recorded: RecordedSlice) -> bytes:
    """Return a slice as JSON. Raises InvalidArtifact if ``parse_slice`` would reject it."""
    try:
        data = encoded(recorded, RecordedSlice)
        parse_slice(data, "slice")
    except ValueError as error:
        raise InvalidArtifact(f"the slice of {recorded.model} cannot be recorded: {error}") from error
    return data


def parse_slice(data: bytes, place: str) -> RecordedSlice:
    """Return the slice in a file at ``place``.

    Raises ValueError if it is malformed, UnsupportedSpecVersion if a later release wrote it.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"it takes more than {MAX_BYTES} bytes")
    try:
        return stored_document(RecordedSlice, decoded(data, dict[str, Any]), place)
    except InvalidTrainSpec as error:
        raise ValueError(str(error)) from error
