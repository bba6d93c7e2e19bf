"""A model is trained again to the byte, from its topic or from kept rows, on a real Kafka and Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from wasmline.cli import main
from wasmline.clock import now_ms
from wasmline.errors import RecordsRemoved
from wasmline.job_specs import SliceRequest, TrainSpec
from wasmline.kafka import Topics, produce_all
from wasmline.provenance import NAME, ProvenanceWriter
from wasmline.testing.kafka import RunningKafka
from wasmline.training import (
    KeptRows,
    ModelRegistry,
    TrainResult,
    kept_rows,
    rebuild_model,
    retention_warnings,
    run_training,
)

VERSIONS = ("1.0.0", "1.1.0")


@pytest.fixture
def spec(spec: TrainSpec, kafka: RunningKafka) -> TrainSpec:
    """Over a topic of its own that keeps its records for ten days, and quick to train."""
    topic = kafka.topic(partitions=2, retention_ms=str(10 * 86_400_000))
    return replace(spec, topic=topic, min_rows=100, trees=5, depth=2)


@pytest.fixture
def wasmline(kafka: RunningKafka, spec: TrainSpec) -> Callable[..., Result]:
    environment = {
        "WASMLINE_KAFKA_CONFIG": json.dumps({"bootstrap.servers": kafka.bootstrap_servers}),
        "WASMLINE_MODELS": spec.models,
    }

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["models", "rebuild", *arguments], env=environment)

    return run


def produce(kafka: RunningKafka, topic: str, first: int, last: int, version: str) -> None:
    """Write records numbered ``first`` to ``last - 1`` of a version of a transform; each tenth has no provenance."""
    writer = ProvenanceWriter("raw", name="clean", version=version, digest="sha256:" + "0" * 64, model=None)

    def records() -> Iterator[tuple[bytes, bytes, list[tuple[str, bytes]], int]]:
        for number in range(first, last):
            km = number % 20
            value = {"id": f"id-{number}", "km": km, "kind": "ab"[number % 2], "minutes": 20.0 + km + number % 3}
            headers = [("other", b"x"), (NAME, b"not the last"), (NAME, writer.value(0, number))][: number % 10 * 9]
            yield b"%d" % (number % 7), json.dumps(value).encode(), headers, now_ms()

    produce_all(kafka.config, topic, records())


def forget(kafka: RunningKafka, topic: str, before: dict[int, int]) -> None:
    """Remove the records before these offsets, as retention does."""
    places = [confluent_kafka.TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    admin = AdminClient(kafka.config.client())
    for answer in admin.delete_records(places).values():
        answer.result(30)


def test_rows_are_counted_and_selected_by_the_version_that_wrote_them(
    kafka: RunningKafka, spark: SparkSession, spec: TrainSpec, wasmline: Callable[..., Result]
) -> None:
    for place, version in enumerate(VERSIONS):
        produce(kafka, spec.topic, place * 300, place * 300 + 300, version)
    old, new = (f"clean@{version} 000000000000" for version in VERSIONS)
    every = run_training(spark, spec, kafka.config)
    assert every.dataset.modules == ("", old, new)
    assert (every.rows.transforms, every.rows.excluded) == ({"": 60, old: 270, new: 270}, 0)
    newest = run_training(spark, replace(spec, transform_versions="newest"), kafka.config)
    assert newest.dataset.modules == (new,)
    assert (newest.rows.transforms, newest.rows.excluded_transforms) == ({new: 270}, {"": 60, old: 270})
    assert newest.rows.excluded == 330
    same = wasmline(f"eta@{newest.version}")
    told = f"eta@{newest.version}  {newest.digest}  the same bytes again, from {newest.rows.training:,} rows\n"
    assert (same.exit_code, same.stdout) == (0, told)


def test_a_version_that_its_dataset_does_not_give_is_named(
    kafka: RunningKafka, spark: SparkSession, spec: TrainSpec, wasmline: Callable[..., Result]
) -> None:
    produce(kafka, spec.topic, 0, 300, VERSIONS[0])
    trained = run_training(spark, spec, kafka.config)
    models = ModelRegistry(spec.models)
    record = models.get("eta").record
    models.publish(replace(record, libraries={"xgboost": "0.1"}), b"{}")
    other = wasmline("eta", "1.1.0", "--json")
    assert other.exit_code == 1
    found = json.loads(other.stdout)
    assert (found["is_same"], found["rebuilt_digest"]) == (False, trained.digest)
    told = wasmline("eta", "1.1.0").stdout
    assert f"its dataset gives {trained.digest}: xgboost 3" in told
    assert "xgboost 0.1 is recorded" in told

    calling = replace(record, dataset=replace(record.dataset, where="reflect('java.lang.System', 'exit', 7) = ''"))
    models.publish(calling, b"{}")
    refused = wasmline("eta", "1.2.0")
    assert refused.exit_code == 1
    assert "the condition of eta@1.2.0 does more than compare fields" in refused.stderr
    models.publish(replace(record, dataset=replace(record.dataset, where="abs(kilometres) > 3")), b"{}")
    unknown = wasmline("eta", "1.3.0", "--trust-condition")
    assert unknown.exit_code == 1
    assert "cannot be read again" in unknown.stderr
    assert "kilometres" in unknown.stderr

    end = Topics(kafka.config).end_offsets(spec.topic)[1]
    forget(kafka, spec.topic, {1: end - 3})
    with pytest.raises(RecordsRemoved) as gone:
        rebuild_model(spark, kafka.config, models=spec.models, name="eta", version="1.0.0")
    assert gone.value.offsets == {"1": (0, end - 3)}
    failed = wasmline("eta", "1.0.0")
    assert failed.exit_code == 1
    assert f"has no more the offsets 1: [0, {end - 3}) of the dataset" in failed.stderr
    assert "a training with keep_rows would have kept them" in failed.stderr


def test_a_model_is_rebuilt_to_the_byte_after_the_topic_has_forgotten_its_records(
    kafka: RunningKafka,
    spark: SparkSession,
    spec: TrainSpec,
    wasmline: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics, kept = Topics(kafka.config), KeptRows(spec.models)

    def night(number: int) -> TrainResult:
        request = SliceRequest(run=f"night-{number}")
        return run_training(spark, replace(spec, slice=request, keep_rows=True), kafka.config)

    produce(kafka, spec.topic, 0, 300, VERSIONS[0])
    with monkeypatch.context() as patched:
        patched.setattr(kept_rows, "MAX_RECORDS", 299)
        [warning] = night(1).warnings
    assert "300 records of " in warning
    assert "more than the 299 records" in warning
    assert kept.numbers("eta") == []
    assert night(1).warnings == ()
    produce(kafka, spec.topic, 300, 600, VERSIONS[1])
    trained = night(2)
    assert (trained.rows.offsets, trained.warnings) == (600, ())
    assert [each.records for each in kept.slices("eta")] == [300, 300]
    ends = topics.end_offsets(spec.topic)

    def rebuilt() -> str:
        found = rebuild_model(spark, kafka.config, models=spec.models, name="eta", version=trained.version)
        assert (found.is_same, found.difference) == (True, "")
        return found.rebuilt_digest

    forget(kafka, spec.topic, {0: ends[0], 1: ends[1] // 3})  # a partition whole, and the other in the midst of a slice
    assert rebuilt() == trained.digest
    again = night(2)
    assert (again.version, again.digest, again.dataset_digest) == (
        trained.version,
        trained.digest,
        trained.dataset_digest,
    )
    topics.delete([spec.topic])
    assert rebuilt() == trained.digest

    [path] = (Path(spec.models) / "slice_rows/eta/000002/blobs/sha256").iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:50] + bytes([data[50] ^ 1]) + data[51:])
    refused = wasmline("eta", trained.version)
    assert refused.exit_code == 1
    assert f"slice_rows/eta/000002/blobs/sha256/{path.name}" in refused.stderr
    assert "its digest is" in refused.stderr


def test_a_slice_is_warned_of_before_its_records_expire(kafka: RunningKafka, spec: TrainSpec) -> None:
    produce(kafka, spec.topic, 0, 10, VERSIONS[0])
    topics = Topics(kafka.config)
    slices = {"slice 1": {str(each): (0, end) for each, end in topics.end_offsets(spec.topic).items()}}
    later_ms = now_ms() + 9 * 86_400_000
    assert retention_warnings(topics, spec.topic, slices, now_ms=now_ms()) == ()
    [warning] = retention_warnings(topics, spec.topic, slices, now_ms=later_ms)
    assert "10 offsets of slice 1 expire within 24 hours" in warning
    assert retention_warnings(topics, spec.topic, {}, now_ms=later_ms) == ()
