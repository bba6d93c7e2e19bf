"""Micro-batches in transactions: whatever happens to a run, each record's outputs are there once, in order."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stage import Stage, by_key, keyed, make_stage
from wasmline.jobs import JobState
from wasmline.kafka import ConsumerGroups, Topics
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka

IDENTITY = guest()


@pytest.fixture
def stage(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> Stage:
    return make_stage(kafka.config, spark, tmp_path)


def outputs(stage: Stage) -> dict[bytes, list[bytes]]:
    return by_key((key, value) for key, value, _ in stage.out())


def test_every_record_arrives_once_in_the_order_of_its_key(stage: Stage) -> None:
    stage.deploy(IDENTITY)
    records = keyed(5_000)
    stage.produce(records)

    report = stage.run(delivery="exactly_once", max_offsets_per_trigger=2_000)

    assert outputs(stage) == by_key(records)
    assert all(headers == {"h": b"x"} for _, _, headers in stage.out())
    assert report.state is JobState.SUCCEEDED
    assert report.result["records_in"] == report.result["records_out"] == 5_000
    assert len(report.result["batches"]) >= 3
    ends = Topics(stage.config).end_offsets(stage.spec.input_topic)
    assert ConsumerGroups(stage.config).committed(f"wasmline.{stage.job}", stage.spec.input_topic) == ends
