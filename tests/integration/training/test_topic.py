"""Training on a slice of a real topic."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from wasmline.errors import InvalidTrainSpec, NotEnoughData, TopicNotFound
from wasmline.job_specs import TrainSpec
from wasmline.kafka import Topics, produce_all
from wasmline.testing.kafka import RunningKafka
from wasmline.training import ModelRegistry, prepare, read_slice, resolve, run_training

START_MS = 1_767_225_600_000


@pytest.fixture
def spec(spec: TrainSpec, kafka: RunningKafka) -> TrainSpec:
    """Over a topic of its own, and quick to train."""
    return replace(spec, topic=kafka.topic(partitions=3, retention_ms="-1"), min_rows=100, trees=5, depth=2)


def produce(kafka: RunningKafka, topic: str, first: int, last: int) -> None:
    """Write records numbered ``first`` to ``last - 1``, a second apart."""

    def records() -> Iterator[tuple[bytes, bytes, None, int]]:
        for number in range(first, last):
            km = number % 20
            value = {
                "id": f"id-{number}",
                "km": km,
                "kind": "ab"[number % 2],
                "minutes": 30.0 if km > 9 else 20.0 + number % 2,
            }
            yield f"driver-{number % 7}".encode(), json.dumps(value).encode(), None, START_MS + number * 1000

    produce_all(kafka.config, topic, records())


def test_a_model_is_trained_on_the_topic_as_it_is_and_keeps_the_exact_offsets(
    kafka: RunningKafka, spark: SparkSession, spec: TrainSpec
) -> None:
    produce(kafka, spec.topic, 0, 600)
    result = run_training(spark, spec, kafka.config, run="r1")
    topics = Topics(kafka.config)
    assert result.dataset.offsets == {str(one): (0, end) for one, end in topics.end_offsets(spec.topic).items()}
    assert result.dataset.topic_id == topics.describe(spec.topic).id
    assert (result.rows.offsets, result.rows.excluded, result.rows.duplicates) == (600, 0, 0)
    assert result.metrics.rmse < result.metrics.mean_rmse
    stored = ModelRegistry(spec.models).get("eta", result.version)
    assert stored.record.dataset == result.dataset
    assert stored.record.run == "r1"
    held_out = ModelRegistry(spec.models).held_out("eta", result.version)
    assert held_out.column_names == ["id", "kind", "km", "minutes"]
    assert held_out.num_rows == stored.record.held_out_rows == result.rows.holdout == result.metrics.rows
    forward = ModelRegistry(spec.models).forward("eta", result.version)
    assert forward is not None
    assert sorted(forward["id"].to_pylist()) == sorted(f"id-{number}" for number in range(480, 600))


def test_the_stored_offsets_give_the_same_model_after_the_topic_has_grown(
    kafka: RunningKafka, spark: SparkSession, spec: TrainSpec
) -> None:
    produce(kafka, spec.topic, 0, 400)
    first = run_training(spark, spec, kafka.config)
    produce(kafka, spec.topic, 400, 800)
    again = run_training(spark, replace(spec, offsets=first.dataset.offsets), kafka.config)
    grown = run_training(spark, spec, kafka.config)
    assert (again.digest, again.version) == (first.digest, first.version)
    assert (grown.rows.offsets, grown.version) == (800, "1.1.0")


def test_only_records_since_the_given_time_are_read(kafka: RunningKafka, spark: SparkSession, spec: TrainSpec) -> None:
    produce(kafka, spec.topic, 0, 400)
    dataset = resolve(replace(spec, since_ms=START_MS + 150_000), Topics(kafka.config))
    rows = prepare(read_slice(spark, dataset, kafka.config), dataset)
    found = {*rows.training["id"].to_pylist(), *rows.holdout["id"].to_pylist()}
    assert found == {f"id-{number}" for number in range(150, 400)}


def test_an_empty_window_is_not_enough_data(kafka: RunningKafka, spec: TrainSpec) -> None:
    produce(kafka, spec.topic, 0, 10)
    with pytest.raises(NotEnoughData, match="no records since"):
        resolve(replace(spec, since_ms=START_MS + 3_600_000), Topics(kafka.config))


def test_offsets_that_the_topic_does_not_hold_are_refused(kafka: RunningKafka, spec: TrainSpec) -> None:
    produce(kafka, spec.topic, 0, 10)
    for offsets in ({"0": (0, 1_000)}, {"9": (0, 1)}):
        with pytest.raises(InvalidTrainSpec, match="does not have the offsets"):
            resolve(replace(spec, offsets=offsets), Topics(kafka.config))


def test_a_topic_that_does_not_exist_is_named(kafka: RunningKafka, spec: TrainSpec) -> None:
    absent = f"absent-{uuid.uuid4()}"
    with pytest.raises(TopicNotFound) as caught:
        resolve(replace(spec, topic=absent), Topics(kafka.config))
    assert caught.value.topic == absent
