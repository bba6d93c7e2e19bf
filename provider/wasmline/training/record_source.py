"""Reads the records of a dataset: from the kept rows of slices, and the others from the topic."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from wasmline.errors import RecordsRemoved, TopicNotFound
from wasmline.offset_ranges import OffsetRanges, difference_of, intersection_of, ranges_text
from wasmline.training.dataset_slice import Dataset
from wasmline.training.kept_rows import KeptRows, KeptSlice
from wasmline.training.prepare import read_slice, rows_within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wasmline.kafka import KafkaConfig, Topics

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSources:
    """Where each record of a dataset is read: in a kept slice, in the topic, or nowhere."""

    kept: tuple[tuple[KeptSlice, OffsetRanges], ...]
    topic: OffsetRanges
    missing: OffsetRanges


def sources_of(dataset: Dataset, held: OffsetRanges, kept: Iterable[KeptSlice]) -> RecordSources:
    """Return the sources of a dataset, of which the topic has the offsets ``held``; pure.

    Kept slices come first: compaction may have removed any record between the topic's beginning and its end.
    """
    rest = dataset.offsets
    parts = []
    for each in kept:
        if (each.topic, each.topic_id) == (dataset.topic, dataset.topic_id):
            if found := intersection_of(rest, each.offsets):
                parts.append((each, found))
            rest = difference_of(rest, each.offsets)
    return RecordSources(kept=tuple(parts), topic=intersection_of(rest, held), missing=difference_of(rest, held))


def read_records(spark: SparkSession, dataset: Dataset, kafka: KafkaConfig, *, model: str, kept: KeptRows) -> DataFrame:
    """Return exactly the committed records of the dataset of a model: columns as ``read_slice`` gives them.

    Raises RecordsRemoved if some are neither in the topic nor kept, BrokerUnavailable, and the errors of ``KeptRows``.
    """
    from wasmline.kafka import Topics

    sources = sources_of(dataset, _held(dataset, Topics(kafka)), kept.slices(model))
    if sources.missing:
        raise RecordsRemoved(
            f"{dataset.topic} has no more the offsets {ranges_text(sources.missing)} of the dataset, and no kept slice "
            f"of {model} has them: a training with keep_rows would have kept them",
            offsets=sources.missing,
        )
    frames = [read_slice(spark, replace(dataset, offsets=sources.topic), kafka)] if sources.topic else []
    for each, offsets in sources.kept:
        log.info("%s: slice %d is read from its kept rows: %s", model, each.number, ranges_text(offsets))
        frames.append(spark.createDataFrame(rows_within(kept.read(each), offsets)))
    return reduce(lambda part, other: part.union(other), frames)


def _held(dataset: Dataset, topics: Topics) -> OffsetRanges:
    """Return the offsets that the topic has, which are none if it was deleted, or created again."""
    try:
        topic = topics.describe(dataset.topic)
        beginning, end = topics.beginning_offsets(dataset.topic), topics.end_offsets(dataset.topic)
    except TopicNotFound:
        return {}
    if dataset.topic_id not in ("", topic.id):
        return {}
    return {str(each): (beginning[each], end[each]) for each in beginning if beginning[each] <= end.get(each, -1)}
