"""Compares a plain consumer for each partition with mode parallel on the same topic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from demo_stack.progress_lines import Progress
from enriching import sequential_consumer
from enriching.benchmark_result import Comparison, Contender
from enriching.orders import UNKNOWN, orders
from enriching.service import CallStats, SlowService
from wasmline.errors import VerificationFailed
from wasmline.kafka import KafkaConfig, Topics, produce_all, read_range


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerComparison:
    """The comparison: three topics with equal numbers of partitions, and a function that runs mode parallel."""

    kafka: KafkaConfig
    service: SlowService
    topic: str
    enriched: str
    dead_letters: str
    partitions: int
    run_parallel: Callable[[], None]

    def compare(self, records: int, sequential_records: int, progress: Progress) -> Comparison:
        """Write orders, consume them in mode parallel and some of them sequentially, and return the comparison.

        The plain consumers read about the first ``sequential_records``, the same share of each partition: they make as
        many calls a second in these as in all.

        Raises VerificationFailed if an output is missing, duplicate or out of order, or if two calls for one customer
        overlapped.
        """
        cluster = Topics(self.kafka)
        for name in (self.topic, self.enriched, self.dead_letters):
            cluster.create(name, self.partitions, exist_ok=True)
        begins = {name: cluster.end_offsets(name) for name in (self.topic, self.enriched, self.dead_letters)}
        first = sum(begins[self.topic].values())
        progress.wait_for(f"writing {records:,} orders")
        produce_all(self.kafka, self.topic, orders(first, records))
        progress.say(f"{records:,} orders, one plain consumer for each of {self.partitions} partitions")
        shares = {
            partition: (begin, begin + (end - begin) * sequential_records // records)
            for partition, (begin, end) in _ranges(cluster, self.topic, begins).items()
        }
        progress.wait_for(f"plain consumers make {sequential_records:,} calls, one after another in each partition")
        book = self.service.new_book()
        sequential_consumer.consume(self.kafka, self.topic, shares, self.service.url)
        plainly = _contender(book)
        progress.say(
            f"plain consumers: {plainly.rate:,.0f} calls/s for the first {plainly.calls:,} orders; all of them follow "
            "in mode parallel, from Airflow"
        )
        book = self.service.new_book()
        self.run_parallel()
        parallel = _contender(book)
        progress.wait_for("checking the enriched orders")
        written, letters = (
            [json.loads(each.value() or b"") for each in read_range(self.kafka, name, _ranges(cluster, name, begins))]
            for name in (self.enriched, self.dead_letters)
        )
        _check(range(first, first + records), written, letters, book)
        progress.say(f"mode parallel: {parallel.rate:,.0f} calls/s, each order once, each customer's in order")
        return Comparison(
            records=records,
            partitions=self.partitions,
            delay_ms=self.service.delay * 1_000,
            plain=plainly,
            parallel=parallel,
            enriched=len(written),
            dead_letters=len(letters),
        )


def _contender(book: CallStats) -> Contender:
    return Contender(calls=book.calls, rate=round(book.rate, 1), at_once=book.at_once)


def _ranges(cluster: Topics, topic: str, begins: dict[str, dict[int, int]]) -> dict[int, tuple[int, int]]:
    return {each: (begins[topic][each], end) for each, end in cluster.end_offsets(topic).items()}


def _check(
    wanted: Iterable[int], written: list[dict[str, Any]], letters: list[dict[str, Any]], book: CallStats
) -> None:
    """Raise VerificationFailed unless each order has one correct output, in order by customer."""
    faults = []
    found = Counter(each["order"] for each in (*written, *letters))
    if missing := [each for each in wanted if each not in found]:
        faults.append(f"{len(missing)} orders have no output, first {missing[0]}")
    if doubled := [order for order, times in found.items() if times > 1]:
        faults.append(f"{len(doubled)} orders came out more than once, first {doubled[0]}")
    last: dict[str, int] = {}
    for each in written:
        customer = each["customer"]["id"]
        if each["order"] < last.get(customer, -1):
            faults.append(f"order {each['order']} of {customer} came after a later one")
        last[customer] = each["order"]
    if strange := [each["order"] for each in letters if each["customer"] != UNKNOWN]:
        faults.append(f"order {strange[0]} is a dead letter, and its customer is known")
    if book.met:
        faults.append(f"{book.met} calls overlapped another call for the same customer")
    if faults:
        raise VerificationFailed(f"the enriched orders do not add up: {'; '.join(faults[:5])}", report={})
