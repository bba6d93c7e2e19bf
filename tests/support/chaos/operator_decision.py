"""What an operator does where a consumer ended with HangingTransaction: looks, decides, and aborts."""

from __future__ import annotations

import re
from typing import NamedTuple

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
