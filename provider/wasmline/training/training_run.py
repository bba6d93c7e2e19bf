"""Runs one training on the records that are asked for: all, given offsets, or those of slices."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from wasmline.clock import now_ms
from wasmline.documents import plain
from wasmline.errors import TrainingSkipped
from wasmline.job_specs import TrainSpec
from wasmline.offset_ranges import difference_of, union_of
from wasmline.training.dataset_slice import Dataset, resolve
from wasmline.training.job import TrainResult, train_on
from wasmline.training.kept_rows import KeptRows, KeptSlice
from wasmline.training.prepare import read_slice, rows_of, usable_rows
from wasmline.training.record_source import read_records
from wasmline.training.recorded_slice import RecordedSlice
from wasmline.training.retention import retention_warnings
from wasmline.training.run_slice import SkipResult, slice_of_run, topic_offsets
from wasmline.training.slice_decision import passed_text
from wasmline.training.slice_log import SliceLog
from wasmline.training.slice_windows import records_of, slice_dataset, slice_windows
from wasmline.training.transform_versions import select_transforms
from wasmline.training.window_choice import Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wasmline.kafka import KafkaConfig, Topics

log = logging.getLogger(__name__)


def run_training(spark: SparkSession, spec: TrainSpec, kafka: KafkaConfig, *, run: str = "") -> TrainResult:
    """Train a model, store its version, and return it with the gate's decision.

    Raises TrainingSkipped if too few rows of its slice are new, NotEnoughData, RecordsRemoved, TopicNotFound,
    BrokerUnavailable, TrainingError, RegistryUnavailable, Conflict.
    """
    from wasmline.kafka import Topics

    topics = Topics(kafka)
    if spec.slice is None:
        dataset = resolve(spec, topics)
        warnings = _logged(retention_warnings(topics, spec.topic, {"the dataset": dataset.offsets}, now_ms=now_ms()))
        return replace(train_on(read_slice(spark, dataset, kafka), dataset, spec, run=run), warnings=warnings)
    found = slice_of_run(
        spec,
        spec.slice,
        topic_now=partial(topic_offsets, topics, spec.topic, spec.slice),
        usable_rows=partial(_count_rows, spark, spec, kafka),
    )
    if isinstance(found, SkipResult):
        raise TrainingSkipped(found.reason, result=plain(replace(found, run=run)))
    return _train_on_slices(spark, spec, kafka, found, topics, run=run)


def _count_rows(spark: SparkSession, spec: TrainSpec, kafka: KafkaConfig, dataset: Dataset) -> int:
    usable, _ = select_transforms(usable_rows(read_slice(spark, dataset, kafka), dataset), spec.transform_versions)
    return int(rows_of(usable, dataset).num_rows)


def _train_on_slices(
    spark: SparkSession, spec: TrainSpec, kafka: KafkaConfig, own: RecordedSlice, topics: Topics, *, run: str
) -> TrainResult:
    """Train on the windows of the run of a slice, after its records were kept if that is asked for."""
    kept, newest = KeptRows(spec.models), slice_dataset(spec, own)
    not_kept = _keep(spark, newest, kafka, own, kept) if spec.keep_rows else ""
    kept_slices = [each for each in kept.slices(spec.model) if (each.topic, each.topic_id) == (own.topic, own.topic_id)]
    history = SliceLog(spec.models).history(spec.model)[: own.number]
    windows = slice_windows(spec, own, history, kept={each.number for each in kept_slices})
    warnings = _logged([passed_text(history), not_kept, *_retention_warnings(topics, spec, windows, kept_slices)])
    dataset = records_of(spec, own, windows)
    records = read_records(spark, dataset, kafka, model=spec.model, kept=kept)
    result = train_on(records, dataset, spec, run=run, windows=windows, newest=newest)
    return replace(result, slice=own, warnings=warnings)


def _keep(spark: SparkSession, dataset: Dataset, kafka: KafkaConfig, own: RecordedSlice, kept: KeptRows) -> str:
    """Keep the records of a slice, or return why not. One that is kept already stays as it is."""
    if own.number in kept.numbers(own.model):
        return ""
    records = read_records(spark, dataset, kafka, model=own.model, kept=kept)
    return kept.keep(records, own)


def _logged(warnings: Iterable[str]) -> tuple[str, ...]:
    """Log warnings, and return them without empty ones."""
    told = tuple(filter(None, warnings))
    for warning in told:
        log.warning("%s", warning)
    return told


def _retention_warnings(
    topics: Topics, spec: TrainSpec, windows: Sequence[Window], kept: Sequence[KeptSlice]
) -> Iterator[str]:
    safe = union_of(each.offsets for each in kept)
    at_risk = {f"the window {each.name!r}": difference_of(each.dataset.offsets, safe) for each in windows}
    yield from retention_warnings(
        topics, spec.topic, {name: offsets for name, offsets in at_risk.items() if offsets}, now_ms=now_ms()
    )
