"""Retention that overtakes a job on Spark ends it, or is counted where the job allows that."""

from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from support.leases.lease_driver import prepare_session
from support.streams.transform_job import TransformJob, make_transform_job
from wasmline.control import StatusTopic
from wasmline.errors import OffsetOutOfRange
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka


@pytest.fixture
def transform_job(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> TransformJob:
    prepare_session(spark, kafka.config)
    return make_transform_job(kafka.config, spark, tmp_path, partitions=1)


def numbered(begin: int, end: int) -> list[tuple[bytes, bytes]]:
    return [(b"k", b"%d" % number) for number in range(begin, end)]


def cut(transform_job: TransformJob, before: int) -> None:
    place = confluent_kafka.TopicPartition(transform_job.spec.input_topic, 0, before)
    admin = AdminClient(transform_job.config.client())
    for answer in admin.delete_records([place]).values():
        answer.result(30)


@pytest.mark.parametrize(
    ("mode", "delivery"),
    [
        pytest.param("microbatch", "at_least_once", marks=pytest.mark.long),
        ("microbatch", "exactly_once"),
        ("parallel", "at_least_once"),
    ],
)
def test_records_that_are_removed_before_they_are_read_end_the_job_or_are_counted(
    transform_job: TransformJob, mode: str, delivery: str
) -> None:
    """The start of a job says nothing of the runs that follow: they do not begin at the end."""
    job: dict[str, Any] = {"mode": mode, "delivery": delivery, "starting_offsets": "latest"}
    transform_job.deploy(guest())
    transform_job.produce(numbered(0, 5))
    transform_job.run(**job)
    transform_job.produce(numbered(5, 30))
    cut(transform_job, 20)

    with pytest.raises(OffsetOutOfRange, match=r"begins at 20, and is to be read from 5 on.*fail_on_data_loss"):
        transform_job.run(**job)

    report = transform_job.run(**job, fail_on_data_loss=False)
    assert report.result["lost_offsets"] == 15
    assert [status.lost_offsets for status in StatusTopic(transform_job.config).of(transform_job.job)] == [15]
    cut(transform_job, 30)
    assert transform_job.run(**job).result["lost_offsets"] == 0
    assert [value for _, value, _ in transform_job.out()] == [b"%d" % number for number in range(20, 30)]
