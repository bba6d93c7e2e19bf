"""Datasets: the exact records of a training and its holdout, sufficient to train the same model again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wasmline.digests import digest_of
from wasmline.documents import encode
from wasmline.errors import InvalidTrainSpec, NotEnoughData
from wasmline.job_specs import FieldType, TrainSpec
from wasmline.offset_ranges import OffsetRanges, count_offsets, ranges_of, require_ranges

if TYPE_CHECKING:
    from wasmline.kafka import Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Offsets of one topic and their conversion to rows. Two datasets with the same ``digest`` have the same rows.

    ``topic_id`` distinguishes a topic from one recreated with its name; it is empty if the cluster has none.
    ``modules`` names the transforms of its records by their provenance, ``name@version digest``, or "" for records
    without it: records of others are not part of it. If it is empty, those of all are: no record has provenance, or too
    many transforms are named to list them. Raises ValueError for offsets that are not ranges.
    """

    topic: str
    topic_id: str
    offsets: OffsetRanges
    fields: dict[str, FieldType]
    where: str
    target: str
    identity: str
    seed: int
    holdout_share: float
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_ranges(self.offsets)

    @property
    def transforms(self) -> tuple[str, ...]:
        """The transforms whose records are part of it; empty for all. Earlier releases named digests, for display."""
        return tuple(each for each in self.modules if not each.startswith("sha256:"))

    @property
    def digest(self) -> str:
        """The identity of the dataset: ``sha256:`` of its manifest, which is this document's JSON."""
        return digest_of(encode(self))

    @property
    def offset_count(self) -> int:
        """The number of offsets in the ranges; in a compacted or transactional topic some have no record."""
        return count_offsets(self.offsets)

    @property
    def ranges(self) -> tuple[tuple[int, int, int], ...]:
        """Each half-open range: partition, start and end."""
        return tuple(ranges_of(self.offsets))


def of_slice(spec: TrainSpec, *, topic_id: str, offsets: OffsetRanges) -> Dataset:
    """Return the dataset of ``spec`` over known offsets."""
    return Dataset(
        topic=spec.topic,
        topic_id=topic_id,
        offsets={partition: offsets[partition] for partition in sorted(offsets, key=int)},
        fields=spec.fields,
        where=spec.where,
        target=spec.target,
        identity=spec.identity,
        seed=spec.seed,
        holdout_share=spec.holdout_share,
    )


def resolve(spec: TrainSpec, topics: Topics) -> Dataset:
    """Return the current dataset: up to the topic's current end, from the offsets or the time in ``spec``.

    Raises TopicNotFound, BrokerUnavailable; NotEnoughData for an empty slice; InvalidTrainSpec for offsets that the
    topic does not have (any more).
    """
    topic = topics.describe(spec.topic)
    beginning, end = topics.beginning_offsets(spec.topic), topics.end_offsets(spec.topic)
    wanted: OffsetRanges
    if spec.offsets is not None:
        wanted = spec.offsets
        _check_held(spec.topic, wanted, beginning, end)
    elif spec.since_ms > 0:
        since = topics.offsets_for_time(spec.topic, spec.since_ms)
        wanted = {str(partition): (since.get(partition, end[partition]), end[partition]) for partition in end}
    else:
        wanted = {str(partition): (beginning[partition], end[partition]) for partition in end}
    dataset = of_slice(spec, topic_id=topic.id, offsets=wanted)
    if dataset.offset_count == 0:
        raise NotEnoughData(f"{spec.topic} has no records since {spec.since_ms}: nothing to train on", rows=0)
    return dataset


def _check_held(topic: str, wanted: OffsetRanges, beginning: Mapping[int, int], end: Mapping[int, int]) -> None:
    for partition, start, stop in ranges_of(wanted):
        if partition not in end or not beginning[partition] <= start <= stop <= end[partition]:
            held = f"[{beginning[partition]}, {end[partition]})" if partition in end else "no such partition"
            raise InvalidTrainSpec(
                f"partition {partition} of {topic} does not have the offsets [{start}, {stop}): it has {held}",
                field="offsets",
            )
