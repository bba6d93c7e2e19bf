"""Slices of a real topic, and trainings on them."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from wasmline.errors import RecordsRemoved, TrainingSkipped
from wasmline.job_specs import SliceRequest, TrainSpec
from wasmline.kafka import Topics, produce_all
from wasmline.offset_ranges import count_offsets, union_of
from wasmline.testing.kafka import RunningKafka
from wasmline.training import (
    RecordedSlice,
    SliceLog,
    TrainResult,
    read_slice,
    run_training,
    slice_of_run,
    topic_offsets,
)
from wasmline.training.dataset_slice import of_slice
from wasmline.training.prepare import OFFSET, PARTITION

START_MS = 1_767_225_600_000
DAY_MS = 24 * 60 * 60 * 1000
DAILY_RECORDS = 30


@pytest.fixture
def spec(spec: TrainSpec, kafka: RunningKafka) -> TrainSpec:
    """Over a topic of its own, and quick to train."""
    topic = kafka.topic(partitions=2, retention_ms="-1")
    return replace(spec, topic=topic, min_rows=50, trees=3, depth=2, windows=("all", "last 1"), slice=asked("r1"))


def asked(run: str, **fields: int) -> SliceRequest:
    return SliceRequest(run=f"dag/{run}", **fields)


def produce(kafka: RunningKafka, topic: str, *days: int) -> None:
    """Write the records of days, in the order of the days given."""

    def records() -> Iterator[tuple[bytes, bytes, None, int]]:
        for day in days:
            for number in range(DAILY_RECORDS):
                identity = f"{day}-{number}-{len(days)}"
                value = {"id": identity, "km": number, "kind": "ab"[number % 2], "minutes": 20.0 + number}
                time_ms = START_MS + day * DAY_MS + number
                yield f"driver-{number % 7}".encode(), json.dumps(value).encode(), None, time_ms

    produce_all(kafka.config, topic, records())


def train(spark: SparkSession, spec: TrainSpec, kafka: RunningKafka, run: str) -> TrainResult:
    return run_training(spark, replace(spec, slice=asked(run)), kafka.config, run=run)


def test_a_run_that_is_repeated_trains_on_the_same_dataset_and_the_next_on_what_came_since(
    kafka: RunningKafka, spark: SparkSession, spec: TrainSpec
) -> None:
    produce(kafka, spec.topic, *range(5))
    first = train(spark, spec, kafka, "r1")
    produce(kafka, spec.topic, *range(5, 9))
    again = train(spark, spec, kafka, "r1")
    assert first.slice
    assert again.slice == first.slice
    assert (again.dataset_digest, again.digest, again.version) == (first.dataset_digest, first.digest, first.version)
    second = train(spark, spec, kafka, "r2")
    assert second.slice
    assert (second.slice.number, second.new_rows) == (2, 4 * DAILY_RECORDS)
    assert [each.window for each in second.candidates] == ["all", "last 1"]
    assert count_offsets(union_of([first.slice.offsets, second.slice.offsets])) == 9 * DAILY_RECORDS
    produce(kafka, spec.topic, 9)
    few = replace(spec, min_new_rows=DAILY_RECORDS + 1)
    with pytest.raises(TrainingSkipped, match=f"has {DAILY_RECORDS} offsets that are new") as skipped:
        train(spark, few, kafka, "r3")
    assert skipped.value.result["new_offsets"] == DAILY_RECORDS
    produce(kafka, spec.topic, 9)  # the same identities once more
    with pytest.raises(TrainingSkipped, match=f"has {DAILY_RECORDS} usable rows that are new"):
        train(spark, few, kafka, "r3")
    assert len(SliceLog(spec.models).history("eta")) == 2


def forget(kafka: RunningKafka, topic: str, before: dict[int, int]) -> None:
    """Remove the records before these offsets, as retention does."""
    places = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    admin = AdminClient(kafka.config.client())
    for answer in admin.delete_records(places).values():
        answer.result(30)


def test_a_window_has_what_retention_removed_only_if_it_was_kept(
    kafka: RunningKafka, spark: SparkSession, spec: TrainSpec
) -> None:
    spec = replace(spec, windows=("all",))
    produce(kafka, spec.topic, *range(3))
    first = train(spark, replace(spec, keep_rows=True), kafka, "r1")
    produce(kafka, spec.topic, *range(3, 6))
    second = train(spark, spec, kafka, "r2")
    ends = Topics(kafka.config).end_offsets(spec.topic)
    produce(kafka, spec.topic, *range(6, 8))
    forget(kafka, spec.topic, ends)
    third = train(spark, spec, kafka, "r3")
    assert first.slice
    assert third.slice
    assert third.dataset.offsets == union_of([first.slice.offsets, third.slice.offsets])
    assert third.rows.training + third.rows.holdout == 5 * DAILY_RECORDS
    assert train(spark, spec, kafka, "r3").dataset_digest == third.dataset_digest
    with pytest.raises(RecordsRemoved):
        train(spark, spec, kafka, "r2")
    assert second.rows.offsets == 6 * DAILY_RECORDS


def test_ten_intervals_of_a_topic_in_any_order_give_ten_slices_that_touch(kafka: RunningKafka, spec: TrainSpec) -> None:
    topics = Topics(kafka.config)
    produce(kafka, spec.topic, *range(6))
    for day in (3, 0, 5, 1, 2, 4, 9, 7, 6, 8):
        if day == 9:
            produce(kafka, spec.topic, 5, 6, 2, 7, 8, 9)  # some come late
        request = asked(f"r{day}", since=START_MS + day * DAY_MS, until=START_MS + (day + 1) * DAY_MS)
        topic_now = partial(topic_offsets, topics, spec.topic, request)
        recorded = slice_of_run(spec, request, topic_now, lambda dataset: dataset.offset_count)
        assert isinstance(recorded, RecordedSlice)
    history = SliceLog(spec.models).history("eta")
    assert len(history) == 10
    ends = topics.end_offsets(spec.topic)
    assert union_of(each.offsets for each in history) == {str(each): (0, ends[each]) for each in sorted(ends)}
    assert sum(count_offsets(each.offsets) for each in history) == 12 * DAILY_RECORDS


def test_runs_at_once_train_on_slices_that_do_not_overlap(
    kafka: RunningKafka, spark: SparkSession, spec: TrainSpec
) -> None:
    produce(kafka, spec.topic, *range(4))

    def run(name: str) -> int:
        try:
            return train(spark, spec, kafka, name).rows.offsets
        except TrainingSkipped:
            return 0

    with ThreadPoolExecutor() as runs:
        trained = list(runs.map(run, ["r1", "r2"]))
    assert sorted(trained) == [0, 4 * DAILY_RECORDS]
    assert len(SliceLog(spec.models).history("eta")) == 1


def test_several_ranges_of_a_partition_are_read_without_what_is_between_them(
    kafka: RunningKafka, spark: SparkSession, spec: TrainSpec
) -> None:
    produce(kafka, spec.topic, *range(4))
    dataset = of_slice(spec, topic_id="", offsets={"0": (2, 4, 9, 12), "1": (0, 3)})
    rows = read_slice(spark, dataset, kafka.config).toArrow()
    found = sorted(zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), strict=True))
    assert found == [(0, 2), (0, 3), (0, 9), (0, 10), (0, 11), (1, 0), (1, 1), (1, 2)]
