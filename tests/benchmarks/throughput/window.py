"""Follows the outputs of a run by the high watermarks of its topics, with the CPU time that it takes meanwhile.

Watermarks count a transaction's markers too: one for each partition and commit, below a hundredth of the records.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # public, though not in its __all__
from throughput.cpu import ProcessTree, machine_seconds, own_seconds
from throughput.outputs import PARTITIONS, Outputs

from wasmline.kafka import KafkaConfig
from wasmline.kafka.bounded_admin_client import BoundedAdminClient
from wasmline.kafka.list_offsets import list_topic_offsets

POLL_INTERVAL_S = 0.05
REQUEST_TIMEOUT_S = 30.0
SETTLED_S = 1.5
"""Seconds without a new record after which a run has ended."""

STALLED_S = 60.0
"""Seconds without a new record, before all are there, after which a run has failed."""

FIRST, LAST = 0.1, 0.9
"""The shares of the outputs between which a run is measured: without its start and its end."""


SHORT_S = 0.5
"""Seconds below which a window is no figure: what was computed before the first write counts too much in it."""


class Stalled(Exception):
    """A contestant wrote nothing for STALLED_S."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The written records at one time, and CPU seconds so far."""

    at: float
    written: int
    contestant: float
    broker: float
    benchmark: float
    machine: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A run from FIRST to LAST. ``others`` is how many cores were used by neither contestant, broker nor benchmark."""

    seconds: float
    records_per_s: float
    cpu_us: float
    broker_us: float
    others: float


class Window:
    """The outputs of one run on a broker whose process is ``broker``."""

    def __init__(self, config: KafkaConfig, outputs: Outputs, broker: int) -> None:
        self._admin = BoundedAdminClient(config, REQUEST_TIMEOUT_S)
        topics = (outputs.features, outputs.dead_letters)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        self._wanted = {TopicPartition(topic, number): latest for topic in topics for number in range(PARTITIONS)}
        self._broker = ProcessTree([broker])

    def follow(self, records: int, contestant: ProcessTree, check: Callable[[], None]) -> list[Sample]:
        """Return samples until all records are written and no more come. ``check`` raises if the contestant ended.

        Raises Stalled.
        """
        samples = [self._sample(contestant)]
        grown = samples[0].at
        while samples[-1].written < records or samples[-1].at - grown < SETTLED_S:
            time.sleep(POLL_INTERVAL_S)
            check()
            samples.append(self._sample(contestant))
            if samples[-1].written > samples[-2].written:
                grown = samples[-1].at
            elif samples[-1].at - grown > STALLED_S:
                raise Stalled(f"{samples[-1].written:,} of {records:,} records after {STALLED_S:g} s without a new one")
        return samples

    def _sample(self, contestant: ProcessTree) -> Sample:
        uncommitted = IsolationLevel.READ_UNCOMMITTED  # whose end is the high watermark
        written = sum(list_topic_offsets(self._admin, self._wanted, uncommitted).values())
        return Sample(
            at=time.monotonic(),
            written=written,
            contestant=contestant.cpu_seconds(),
            broker=self._broker.cpu_seconds(),
            benchmark=own_seconds(),
            machine=machine_seconds(),
        )


def figures(samples: list[Sample], records: int) -> Figures:
    """Return what samples of a whole run amount to."""
    first, last = (next(each for each in samples if each.written >= share * records) for share in (FIRST, LAST))
    seconds, written = last.at - first.at, last.written - first.written
    ours = sum(getattr(last, who) - getattr(first, who) for who in ("contestant", "broker", "benchmark"))
    return Figures(
        seconds=seconds,
        records_per_s=written / seconds,
        cpu_us=(last.contestant - first.contestant) / written * 1e6,
        broker_us=(last.broker - first.broker) / written * 1e6,
        others=max(0.0, last.machine - first.machine - ours) / seconds,
    )
