"""The only broker goes and comes back under micro-batches: each record's output is there, in the order of its key."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.chaos.consumer_group import ENDS, TIMEOUT_S
from support.record_traffic import Feed, Record
from support.rounds import resuming, rounds
from support.streams.transform_job import by_key, make_transform_job, until
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka

RATE = 100
"""Records that are written in a second, whatever happens."""

KEYS = 40


@pytest.mark.long
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_the_only_broker_is_restarted(
    stoppable_kafka: RunningKafka, spark: SparkSession, tmp_path: Path, delivery: str
) -> None:
    transform_job = make_transform_job(stoppable_kafka.config, spark, tmp_path)
    transform_job.deploy(guest())
    acknowledged: list[Record] = []

    def note(number: int, _: Any) -> None:
        acknowledged.append(record(number))

    def more_than(outputs: int) -> bool:
        return len(transform_job.out()) > outputs

    def all_there() -> bool:
        return {value for _, value, _ in transform_job.out()} == {value for _, value in acknowledged}

    with transform_job.running(delivery=delivery):
        with Feed(stoppable_kafka.config, transform_job.spec.input_topic, RATE, record, note):
            until(partial(more_than, 0))
            for number in rounds():
                outputs = len(transform_job.out())
                ENDS[number % 2](stoppable_kafka.local, 1)
                stoppable_kafka.local.start_node(1)
                with resuming():
                    until(partial(more_than, outputs + RATE), TIMEOUT_S)
        until(all_there, TIMEOUT_S)
    written = transform_job.written()
    assert sorted(written) == sorted(acknowledged)
    seen = by_key((key, value) for key, value, _ in transform_job.out())
    if delivery == "at_least_once":
        seen = {key: list(dict.fromkeys(values)) for key, values in seen.items()}
    assert seen == by_key(written)


def record(number: int) -> Record:
    return b"key-%d" % (number % KEYS), b"%d" % number
