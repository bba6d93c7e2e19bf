"""Compares a plain consumer for each partition with mode parallel on the same topic."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

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

    def compare(self, records: int, tell: Callable[[str], object]) -> Comparison:
        """Write orders, consume them in both ways, and return the comparison.

        Raises VerificationFailed if an output is missing, duplicate or out of order, or if two calls for one customer
        overlapped.
        """
        cluster = Topics(self.kafka)
        for name in (self.topic, self.enriched, self.dead_letters):
            cluster.create(name, self.partitions, exist_ok=True)
        begins = {name: cluster.end_offsets(name) for name in (self.topic, self.enriched, self.dead_letters)}
        first = sum(begins[self.topic].values())
        produce_all(self.kafka, self.topic, orders(first, records))
        tell(f"{records:,} orders, one plain consumer for each of {self.partitions} partitions")
        book = self.service.new_book()
        sequential_consumer.consume(self.kafka, self.topic, _ranges(cluster, self.topic, begins), self.service.url)
        plainly = _contender(book)
        tell(f"plain consumers: {plainly.rate:,.0f} records/s; the same orders in mode parallel, from Airflow")
        book = self.service.new_book()
        self.run_parallel()
        parallel = _contender(book)
        written, letters = (
            [json.loads(each.value() or b"") for each in read_range(self.kafka, name, _ranges(cluster, name, begins))]
            for name in (self.enriched, self.dead_letters)
        )
        _check(range(first, first + records), written, letters, book)
        tell(f"mode parallel: {parallel.rate:,.0f} records/s, each order once, each customer's in order")
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
