"""What an operator does where a consumer ended with HangingTransaction: looks, decides, and aborts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from support.chaos.call_ledger import Left
from wasmline.kafka import KafkaConfig
from wasmline.kafka.transaction_requests import TransactionRequests
from wasmline.topic_partitions import TopicPartition

REPORT = re.compile(
    r"HangingTransaction: a broker lost markers of transactional id (?P<name>\S+), producer (?P<id>\d+):"
)
COMMAND = re.compile(r"abort --topic (?P<topic>\S+) --partition (?P<partition>\d+) --start-offset (?P<offset>\d+)")

REQUESTS_TIMEOUT_S = 30.0


class Hanging(NamedTuple):
    """What the error names."""

    transactional_id: str
    producer_id: int
    start_offsets: dict[TopicPartition, int]

    @property
    def partition(self) -> int:
        """The partition whose progress it commits."""
        return int(self.transactional_id.rpartition("/")[2])

    def require_unseen(self, outputs: Mapping[bytes, Iterable[str]], left: Mapping[int, Left]) -> None:
        """Assert that a read_committed reader sees no output of what is not committed, ``partition@offset`` by key."""
        places = (each.split("@") for each in chain.from_iterable(outputs.values()))
        seen = {int(offset) for partition, offset in places if int(partition) == self.partition}
        done = left.get(self.partition, Left(0, -1, frozenset()))
        undone = sorted(each for each in seen if not done.has(each))
        assert not undone, f"the hanging transaction is committed in parts: {undone[:5]} of {self}"


def hanging_in(log: str) -> Hanging | None:
    """Return what the last line of a consumer's log names, if that is this error."""
    lines = log.splitlines()
    report = REPORT.search(lines[-1]) if lines else None
    if report is None:
        return None
    commands = COMMAND.finditer(lines[-1])
    places = {TopicPartition(each["topic"], int(each["partition"])): int(each["offset"]) for each in commands}
    assert places, f"no command for an operator: {lines[-1]}"
    return Hanging(report["name"], int(report["id"]), places)


def abort(config: KafkaConfig, hanging: Hanging, group: str) -> None:
    """Abort what is still open of it. The tool of its command has to be installed; this asks the coordinator."""
    with TransactionRequests(config, REQUESTS_TIMEOUT_S) as requests:
        opened = requests.open_transactions(hanging.start_offsets)
        left = [
            where
            for where, its in opened.items()
            if (hanging.producer_id, hanging.start_offsets[where])
            in {(each.producer_id, each.start_offset) for each in its}
        ]
        if left:
            requests.end_empty(requests.fence(hanging.transactional_id), group, left, commit=False)
