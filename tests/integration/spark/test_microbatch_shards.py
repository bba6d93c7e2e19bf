"""Micro-batches that are spread over more tasks than the topic has partitions."""

import os
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest
from pyspark.sql import SparkSession

from support.streams import local_cluster
from support.streams.transform_job import by_key, keyed, make_transform_job
from wasmline.control import StatusTopic
from wasmline.kafka import ConsumerGroups, Topics, producer
from wasmline.testing.guests import TRAP, WRITE, guest, when_key
from wasmline.testing.kafka import RunningKafka
from wasmline.transactional_ids import VIRTUAL_SHARDS

TRAPS_ON_X = guest(when_key("x", TRAP) + WRITE)


@pytest.mark.long
def test_records_of_a_key_stay_in_order_where_shards_come_over_the_network(kafka: RunningKafka, tmp_path: Path) -> None:
    records = keyed(12_000)
    transform_jobs = {
        delivery: make_transform_job(kafka.config, None, tmp_path) for delivery in ("at_least_once", "exactly_once")
    }
    for delivery, transform_job in transform_jobs.items():
        transform_job.deploy(guest())
        transform_job.produce(records)
        transform_job.order(delivery=delivery, shards=5)
    environment = {
        **os.environ,
        "SPARK_HOME": str(local_cluster.spark_home(tmp_path / "spark")),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "WASMLINE_KAFKA_CONFIG": kafka.config.to_json(),
    }
    command = [
        sys.executable,
        local_cluster.__file__,
        *(transform_job.job for transform_job in transform_jobs.values()),
    ]
    subprocess.run(command, env=environment, check=True, timeout=400)
    for transform_job in transform_jobs.values():
        assert by_key((key, value) for key, value, _ in transform_job.out()) == by_key(records)


def test_shards_are_written_once_and_a_replay_repeats_nothing(
    kafka: RunningKafka, spark: SparkSession, tmp_path: Path
) -> None:
    transform_job = make_transform_job(kafka.config, spark, tmp_path)
    transform_job.deploy(TRAPS_ON_X)
    records = keyed(3_000)
    transform_job.produce([*records, (b"x", b"poison")])
    report = transform_job.run(delivery="exactly_once", shards=5)
    assert report.result["records_in"] == report.result["records_out"] + 1 == 3_001
    for commit in tmp_path.glob(f"checkpoints/{transform_job.job}/*/commits/*0*"):
        commit.unlink()
    transform_job.run(delivery="exactly_once", shards=3)

    assert by_key((key, value) for key, value, _ in transform_job.out()) == by_key(records)
    assert [value for value, _ in transform_job.letters()] == [b"poison"]
    expected = transform_job.expected_headers()
    assert all(headers == expected[value] for _, value, headers in transform_job.out())
    assert {status.lag for status in StatusTopic(kafka.config).of(transform_job.job)} == {0}


@pytest.mark.long
def test_partitions_of_a_virtual_shard_share_transactions(
    kafka: RunningKafka, spark: SparkSession, tmp_path: Path
) -> None:
    transform_job = make_transform_job(kafka.config, spark, tmp_path, partitions=VIRTUAL_SHARDS + 2)
    transform_job.deploy(TRAPS_ON_X)
    records = keyed(4_000)
    partitions = (0, 1, 2, VIRTUAL_SHARDS, VIRTUAL_SHARDS + 1)

    def feed(some: list[tuple[bytes, bytes]]) -> None:
        client = producer(kafka.config)
        for key, value in some:
            client.produce(
                transform_job.spec.input_topic, value, key, partition=partitions[crc32(key) % len(partitions)]
            )
        assert client.flush(60) == 0

    feed([*records[:3_000], (b"x", b"poison")])
    transform_job.run(delivery="exactly_once")
    for commit in tmp_path.glob(f"checkpoints/{transform_job.job}/*/commits/*0*"):
        commit.unlink()
    feed(records[3_000:])
    transform_job.run(delivery="exactly_once", shards=5)

    assert by_key((key, value) for key, value, _ in transform_job.out()) == by_key(records)
    assert [value for value, _ in transform_job.letters()] == [b"poison"]
    ends = Topics(kafka.config).end_offsets(transform_job.spec.input_topic)
    assert all(ends[partition] for partition in partitions)
    assert (
        ConsumerGroups(kafka.config).committed(f"wasmline.{transform_job.job}", transform_job.spec.input_topic) == ends
    )
