"""The Python contestants, in a process of their own: ours with threads, pinned threads and asyncio, pyrallel-consumer,
a plain one, and threads without a consumer.

Each line of standard input is a job in JSON; each is answered by one line of JSON on standard output, the calls that
the handler got and the CPU time. pyrallel-consumer needs another Python than ours, so nothing that one of them lacks is
imported here.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from consumer.calls import Calls

TIMEOUT_S = 300.0
"""Seconds until a contestant is stopped that has not handled all records."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a contestant is to do: handle ``records`` of a topic, as member of a new group."""

    contestant: str
    bootstrap: str
    topic: str
    records: int
    concurrency: int
    work: str


def threads(job: Job, calls: Calls, group: str) -> None:
    """Run ours with a function."""
    _ours(job, calls, group, lambda record: calls.handle(record.partition, record.offset))


def pinned(job: Job, calls: Calls, group: str) -> None:
    """Run ours with a function, on one core from now on, as ``taskset`` would."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    threads(job, calls, group)


def asyncio_(job: Job, calls: Calls, group: str) -> None:
    """Run ours with a coroutine function."""

    async def handle(record: Any) -> None:
        await calls.handle_async(record.partition, record.offset)

    _ours(job, calls, group, handle)


def _ours(job: Job, calls: Calls, group: str, handle: Callable[[Any], Any]) -> None:
    from wasmline.consumer import ConsumerOptions, ParallelConsumer

    options = ConsumerOptions(
        topics=(job.topic,),
        group_id=group,
        max_concurrency=job.concurrency,
        kafka={"bootstrap.servers": job.bootstrap},
    )
    run_until(ParallelConsumer(options), handle, calls.enough)


def run_until(consumer: Any, handler: Any, enough: threading.Event) -> None:
    """Run a ParallelConsumer until ``enough`` is set, or TIMEOUT_S is at its end."""

    def stop() -> None:
        enough.wait(TIMEOUT_S)
        consumer.stop()

    waiting = threading.Thread(target=stop)
    waiting.start()
    try:
        consumer.run(handler)
    finally:
        enough.set()
        waiting.join()


def plain(job: Job, calls: Calls, group: str) -> None:
    """Run one consumer that handles one record after the other."""
    consumer = _subscribed(job, group)
    while not calls.enough.is_set():
        for message in consumer.consume(500, 0.1):
            if message.error() is None and not calls.enough.is_set():
                calls.handle(*_at(message))
    consumer.close()


def bare(job: Job, calls: Calls, group: str) -> None:
    """Run as many threads, each with all records of its keys in a list: what threads of Python can do at most."""
    consumer = _subscribed(job, group)
    keys: dict[Any, list[tuple[int, int]]] = {}
    read = 0
    while read < job.records:
        for message in consumer.consume(500, 0.1):
            keys.setdefault((message.partition(), message.key()), []).append(_at(message))
            read += 1
    consumer.close()
    turns = list(keys.values())
    lists = [list(chain.from_iterable(turns[number :: job.concurrency])) for number in range(job.concurrency)]
    workers = [threading.Thread(target=_handle_all, args=(calls, records)) for records in lists]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _handle_all(calls: Calls, records: Sequence[tuple[int, int]]) -> None:
    for partition, offset in records:
        calls.handle(partition, offset)


def _subscribed(job: Job, group: str) -> Any:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": job.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([job.topic])
    return consumer


def _at(message: Any) -> tuple[int, int]:
    return message.partition(), message.offset()


def pyrallel(job: Job, calls: Calls, group: str) -> None:
    """Run pyrallel-consumer with its asyncio engine, a key at a time, and its defaults."""
    asyncio.run(_pyrallel(job, calls, group))


async def _pyrallel(job: Job, calls: Calls, group: str) -> None:
    import pyrallel_consumer as library  # type: ignore[import-not-found]

    execution = library.ExecutionConfig(mode=library.ExecutionMode.ASYNC, max_in_flight=job.concurrency)
    ordering = library.OrderingMode.KEY_HASH
    config = library.KafkaConfig(
        BOOTSTRAP_SERVERS=[job.bootstrap],
        CONSUMER_GROUP=group,
        dlq_enabled=False,
        parallel_consumer=library.ParallelConsumerConfig(ordering_mode=ordering, execution=execution),
    )

    async def handle(item: Any) -> None:
        await calls.handle_async(item.tp.partition, item.offset)

    consumer = library.PyrallelConsumer(config=config, worker=handle, topic=job.topic)
    await consumer.start()
    await asyncio.to_thread(calls.enough.wait, TIMEOUT_S)
    await consumer.stop()


CONTESTANTS = {
    "threads": threads,
    "asyncio": asyncio_,
    "pinned": pinned,
    "plain": plain,
    "bare": bare,
    "pyrallel": pyrallel,
}


def main() -> None:
    """Do the jobs on standard input, until it ends."""
    logging.disable(logging.WARNING)
    # As `wasmline worker` does, for all contestants.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 10)
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        job = Job(**json.loads(line))
        calls = Calls(job.work, job.records)
        CONTESTANTS[job.contestant](job, calls, f"bench-{uuid.uuid4()}")
        answer = {"cpu_s": calls.cpu_s, "calls": calls.made}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
