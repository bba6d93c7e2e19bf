"""The append-only log of the slices that models were trained on."""

from __future__ import annotations

from itertools import pairwise

from wasmline.clock import now_ms
from wasmline.errors import InvalidLayout
from wasmline.job_specs import SliceRequest
from wasmline.offset_ranges import ranges_of
from wasmline.registry.storage import open_storage
from wasmline.training.numbered_log import NumberedLog
from wasmline.training.recorded_slice import MAX_BYTES, RecordedSlice, parse_slice, slice_document
from wasmline.training.slice_decision import NewSlice, TopicOffsets

FOLDER = "slices"


class SliceLog:
    """The slices of the models of one registry, one file each, numbered from 1 without gaps.

    No offset of a topic is in two slices of a model.
    """

    def __init__(self, url: str) -> None:
        self._log = NumberedLog(
            storage=open_storage(url),
            folder=FOLDER,
            file="slice.json",
            noun="slice",
            parse=parse_slice,
            max_bytes=MAX_BYTES,
        )

    def history(self, name: str) -> list[RecordedSlice]:
        """Return all slices of a model, the oldest first.

        Raises InvalidLayout for a malformed one and for two that overlap, InvalidReference, UnsupportedSpecVersion.
        """
        slices = self._log.read_all(name)
        ranges = sorted(
            (each.topic, each.topic_id, partition, start, end, each.number)
            for each in slices
            for partition, start, end in ranges_of(each.offsets)
        )
        for (*place, _, end, number), (*next_place, start, _, next_number) in pairwise(ranges):
            if place == next_place and start < end:
                path = self._log.path(name, max(number, next_number))
                raise InvalidLayout(
                    f"{path} in {self._log.storage.url} overlaps slice {min(number, next_number)} at offset {start} of "
                    f"partition {place[2]}: remove it and those after it",
                    path=path,
                )
        return slices

    def append(
        self, name: str, after: int, new: NewSlice, *, request: SliceRequest, topic: TopicOffsets
    ) -> RecordedSlice | None:
        """Record what was decided on the first ``after`` slices, and return it.

        None if another run recorded the slice after these meanwhile: decide again. Raises InvalidArtifact for a slice
        that could not be read back, such as an empty one.
        """
        recorded = RecordedSlice(
            model=name,
            number=after + 1,
            topic=topic.topic,
            topic_id=topic.topic_id,
            offsets=new.offsets,
            beginning=topic.beginning,
            request=request,
            decided_ms=now_ms(),
            times=new.times,
            forgotten=new.forgotten,
        )
        return recorded if self._log.create(name, recorded.number, slice_document(recorded)) else None
