"""A call of a handler that lasts longer than ``handler_timeout_ms``: what ends it, and what it holds up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from support.consumers.clusters import Cluster, Memory, numbered
from support.consumers.running_consumer import PROMPT, TIMEOUT_S, Ledger, Running
from wasmline.consumer import ConsumedRecord, ConsumerOptions, Output, RetryPolicy
from wasmline.topic_partitions import TopicPartition

TWICE = RetryPolicy(delay_ms=1, max_attempts=2)


def options(topic: str, group: str, **others: Any) -> ConsumerOptions:
    return ConsumerOptions(topics=(topic,), group_id=group, **{"handler_timeout_ms": 30, **others})


def committed(cluster: Cluster, group: str, topic: str) -> int | None:
    left = cluster.committed(group, topic).get(TopicPartition(topic, 0))
    return None if left is None else left.offset


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_coroutine_is_cancelled_and_its_record_has_failed(
    cluster: Cluster, group: str, ledger: Ledger, delivery: str, batch_size: int | None
) -> None:
    topic, target, letters = cluster.topic(), cluster.topic(), cluster.topic()
    cluster.write(*numbered(topic, 8, keys=8))
    cancelled: list[int] = []

    async def one(record: ConsumedRecord) -> Output:
        if record.offset == 3:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(record.attempt)
        return Output(target, record.value)

    async def several(records: Sequence[ConsumedRecord]) -> list[Output]:
        return [await one(record) for record in records]

    asked = options(
        topic,
        group,
        delivery=delivery,
        batch_size=batch_size,
        retry=TWICE,
        dead_letter_topic=letters,
        commit_interval_ms=20,
    )
    with Running(cluster, asked, several if batch_size else one) as running:
        running.until(lambda health: health.partitions and health.partitions[0].next_commit == 8)
        running.until(lambda _: committed(cluster, group, topic) == 8)
    assert running.failure is None
    (letter,) = cluster.read(letters)
    assert letter.value == b"3"
    assert dict(letter.headers)["wasmline.error"] == b"HandlerTimeout"
    assert b"30 ms" in (dict(letter.headers)["wasmline.reason"] or b"")
    assert sorted(record.value or b"" for record in cluster.read(target)) == [
        b"%d" % each for each in range(8) if each != 3
    ]
    assert cancelled[-2:] == [1, 2]


def test_a_time_out_of_the_handlers_own_is_told_from_that_of_the_consumer(
    memory: Memory, group: str, ledger: Ledger
) -> None:
    topic, letters = memory.topic(), memory.topic()
    memory.write(*numbered(topic, 1))

    async def work(record: ConsumedRecord) -> None:
        async with asyncio.timeout(0):
            await asyncio.Event().wait()

    asked = options(topic, group, handler_timeout_ms=60_000, retry=TWICE, dead_letter_topic=letters)
    with Running(memory, asked, work) as running:
        running.until(lambda health: health.counters.given_up == 1)
        running.stop(drain=True)
    assert [dict(letter.headers)["wasmline.error"] for letter in memory.read(letters)] == [b"TimeoutError"]


def test_a_coroutine_that_will_not_be_cancelled_is_told_of_and_counts_as_it_returns(
    memory: Memory, group: str, ledger: Ledger
) -> None:
    topic = memory.topic()
    memory.write(*numbered(topic, 5, keys=5))
    finish: list[bool] = []

    async def work(record: ConsumedRecord) -> None:
        while record.offset == 0 and not finish:
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                ledger.note(record)

    with Running(memory, options(topic, group, commit_interval_ms=1), work) as running:
        ledger.count(1)
        running.until(lambda health: health.partitions[0].timed_out_calls == 1)
        finish.append(True)
        running.until(lambda _: committed(memory, group, topic) == 5)
    assert running.consumer.health().counters.failures == 0


def test_a_thread_that_is_late_is_told_of_holds_up_its_key_alone_and_counts_as_it_returns(
    memory: Memory, group: str, ledger: Ledger, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    topic = memory.topic()
    memory.write(*numbered(topic, 20, keys=5))

    def work(record: ConsumedRecord) -> None:
        if record.offset == 2:
            gate.wait(TIMEOUT_S)
        ledger.note(record)

    with Running(memory, options(topic, group, commit_interval_ms=1), work) as running:
        ledger.count(16)
        health = running.until(lambda health: health.partitions[0].timed_out_calls == 1)
        assert health.partitions[0].incompletes == 4
        assert health.waiting[0].offset == 2
        running.until(lambda _: "handler_timeout_ms is 30" in caplog.text)
        gate.set()
        running.until(lambda _: committed(memory, group, topic) == 20)
        running.until(lambda health: health.partitions[0].timed_out_calls == 0)
    told = [each for each in caplog.messages if "handler_timeout_ms" in each]
    assert len(told) == 1
    assert told[0].startswith(f"{topic}-0@2: ")
    assert running.consumer.health().counters.failures == 0


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_neither_a_stop_nor_a_rebalance_waits_for_a_thread_that_is_late(
    memory: Memory, group: str, ledger: Ledger, gate: threading.Event, delivery: str
) -> None:
    topic = memory.topic(2)
    memory.write(*numbered(topic, 5, keys=5), *numbered(topic, 5, keys=5, partition=1))

    def work(record: ConsumedRecord) -> None:
        ledger.note(record)
        if record.offset == 2:
            gate.wait()

    asked = options(topic, group, delivery=delivery, revoke_wait_ms=3_600_000, drain_wait_ms=3_600_000)
    timings = replace(PROMPT, handler_shutdown_s=0.01)
    with Running(memory, asked, work, timings=timings) as first:
        ledger.count(10)
        first.until(lambda health: [each.timed_out_calls for each in health.partitions] == [1, 1])
        asked = options(topic, group, delivery=delivery, drain_wait_ms=0)
        with Running(memory, asked, work, timings=timings) as second:
            second.until(lambda health: len(health.partitions) == 1)
            ledger.count(11)  # what was not done
        first.stop(drain=False)
    assert first.failure is None
    for partition in (0, 1):
        assert memory.committed(group, topic)[TopicPartition(topic, partition)].offset == 2
