"""Retention that overtakes a job on Spark ends it, or is counted where the job allows that."""

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from support.leases.lease_driver import equip
from support.streams.stream_stage import Stage, make_stage
from wasmline.control import StatusTopic
from wasmline.errors import OffsetOutOfRange
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka


@pytest.fixture
def stage(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> Stage:
    equip(spark, kafka.config)
    return make_stage(kafka.config, spark, tmp_path, partitions=1)


def numbered(begin: int, end: int) -> list[tuple[bytes, bytes]]:
    return [(b"k", b"%d" % number) for number in range(begin, end)]


def cut(stage: Stage, before: int) -> None:
    place = confluent_kafka.TopicPartition(stage.spec.input_topic, 0, before)
    admin = AdminClient(stage.config.client())
    for answer in admin.delete_records([place]).values():
        answer.result(30)


@pytest.mark.parametrize(
    ("mode", "delivery"),
    [("microbatch", "at_least_once"), ("microbatch", "exactly_once"), ("parallel", "at_least_once")],
)
def test_records_that_are_removed_before_they_are_read_end_the_job_or_are_counted(
    stage: Stage, mode: str, delivery: str
) -> None:
    """The start of a job says nothing of the runs that follow: they do not begin at the end."""
    job: dict[str, Any] = {"mode": mode, "delivery": delivery, "starting_offsets": "latest"}
    stage.deploy(guest())
    stage.produce(numbered(0, 5))
    stage.run(**job)
    stage.produce(numbered(5, 30))
    cut(stage, 20)

    with pytest.raises(OffsetOutOfRange, match=r"begins at 20, and is to be read from 5 on.*fail_on_data_loss"):
        stage.run(**job)

    report = stage.run(**job, fail_on_data_loss=False)
    assert report.result["lost_offsets"] == 15
    assert [status.lost_offsets for status in StatusTopic(stage.config).of(stage.job)] == [15]
    cut(stage, 30)
    assert stage.run(**job).result["lost_offsets"] == 0
    assert [value for _, value, _ in stage.out()] == [b"%d" % number for number in range(20, 30)]
