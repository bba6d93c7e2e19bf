"""Datasets: the exact records of a training and its holdout, sufficient to train the same model again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wasmline.digests import digest_of
from wasmline.documents import encode
from wasmline.errors import InvalidTrainSpec, NotEnoughData
from wasmline.job_specs import FieldType, TrainSpec

if TYPE_CHECKING:
    from wasmline.kafka import Topics

Slice = dict[str, tuple[int, int]]
"""Half-open offset ranges by partition; the partition is text because it is a key of a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A slice of one topic and its conversion to rows. Two datasets with the same ``digest`` have the same rows.

    ``topic_id`` distinguishes a topic from one recreated with its name; it is empty if the cluster has none.
    """

    topic: str
    topic_id: str
    offsets: Slice
    fields: dict[str, FieldType]
    where: str
    target: str
    identity: str
    seed: int
    holdout_share: float
    modules: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The identity of the dataset: ``sha256:`` of its manifest, which is this document's JSON."""
        return digest_of(encode(self))

    @property
    def offset_count(self) -> int:
        """The number of offsets in the slice; in a compacted or transactional topic some have no record."""
        return sum(end - start for start, end in self.offsets.values())


def of_slice(spec: TrainSpec, *, topic_id: str, offsets: Slice) -> Dataset:
    """Return the dataset of ``spec`` over a known slice."""
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
        modules=tuple(sorted(spec.modules)),
    )


def resolve(spec: TrainSpec, topics: Topics) -> Dataset:
    """Return the current dataset: up to the topic's current end, from the offsets or the time in ``spec``.

    Raises TopicNotFound, BrokerUnavailable; NotEnoughData for an empty slice; InvalidTrainSpec for offsets that the
    topic does not have (any more).
    """
    topic = topics.describe(spec.topic)
    beginning, end = topics.beginning_offsets(spec.topic), topics.end_offsets(spec.topic)
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


def _check_held(topic: str, wanted: Slice, beginning: Mapping[int, int], end: Mapping[int, int]) -> None:
    for partition, (start, stop) in wanted.items():
        number = int(partition)
        if number not in end or not beginning[number] <= start <= stop <= end[number]:
            held = f"[{beginning[number]}, {end[number]})" if number in end else "no such partition"
            raise InvalidTrainSpec(
                f"partition {partition} of {topic} does not have the offsets [{start}, {stop}): it has {held}",
                field="offsets",
            )
