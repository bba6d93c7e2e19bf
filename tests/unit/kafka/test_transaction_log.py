"""What a coordinator decided, read from the records of its log."""

from functools import partial

import pytest

from wasmline.kafka import protocol_types
from wasmline.kafka.hanging_transactions import AMBIGUOUS, CONTRADICTED, UNKNOWN, decision_about
from wasmline.kafka.protocol_types import MalformedMessage
from wasmline.kafka.transaction_log import Decided, Decision, decided, internal_partition
from wasmline.topic_partitions import TopicPartition

ID = "job/orders/0"
OUT = TopicPartition("out", 1)
EMPTY, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT = 0, 2, 3, 4


def record(status: int, *, name: str = ID, version: int = 1, end: bytes = b"") -> tuple[bytes, bytes]:
    """Return a key and a value of __transaction_state, as Kafka 4 (version 1) or an earlier one (0) writes them."""
    key = protocol_types.int16(0) + protocol_types.string(name)
    value = (
        protocol_types.int16(version)
        + protocol_types.int64(7)
        + protocol_types.int16(3)
        + protocol_types.int32(60_000)
        + protocol_types.int8(status)
    )
    if version == 0:
        value += (
            protocol_types.array([protocol_types.string("out") + protocol_types.array([protocol_types.int32(1)])])
            + protocol_types.int64(1)
            + protocol_types.int64(2)
        )
    else:
        topic = (
            protocol_types.compact_string("out")
            + protocol_types.compact_array([protocol_types.int32(1)])
            + protocol_types.NO_TAGGED_FIELDS
        )
        value += protocol_types.compact_array([topic]) + protocol_types.int64(1) + protocol_types.int64(2)
        value += (
            protocol_types.uvarint(1) + protocol_types.uvarint(2) + protocol_types.uvarint(2) + protocol_types.int16(2)
        )  # a tagged field: the client's TV
    return key, value + end


@pytest.mark.parametrize("version", [0, 1])
def test_decisions_are_read_in_order(version: int) -> None:
    statuses = [EMPTY, PREPARE_COMMIT, COMPLETE_COMMIT, PREPARE_ABORT]
    found = list(decided(ID, [record(status, version=version) for status in statuses]))
    partitions = frozenset([OUT])
    assert found == [Decided(ID, 7, 3, each, partitions) for each in (Decision.COMMIT, Decision.ABORT)]


def test_other_ids_and_tombstones_are_passed_over() -> None:
    assert list(decided(ID, [record(PREPARE_COMMIT, name="other"), (record(0)[0], None), (None, b"")])) == []


@pytest.mark.parametrize("odd", [record(PREPARE_COMMIT, version=2), record(PREPARE_COMMIT, end=b"more")])
def test_a_record_of_another_format_is_refused(odd: tuple[bytes, bytes]) -> None:
    with pytest.raises(MalformedMessage):
        list(decided(ID, [odd]))


@pytest.mark.parametrize(
    ("name", "partition"), [("", 0), ("a", 6), ("polygenelubricants", 0), ("gruppe-ä-\U0001f600", 3)]
)
def test_an_internal_partition_is_that_of_javas_hash(name: str, partition: int) -> None:
    """The third one's hash is Java's least integer, whose absolute value Kafka takes for 0."""
    assert internal_partition(name, 7) == partition


def of(*decisions: Decision, producer_id: int = 7, partition: TopicPartition = OUT) -> list[Decided]:
    return [Decided(ID, producer_id, 3, each, frozenset([partition])) for each in decisions]


def test_the_last_decision_about_a_partition_counts() -> None:
    commit, abort = Decision.COMMIT, Decision.ABORT
    elsewhere = of(abort, abort, partition=TopicPartition("out", 0)) + of(abort, producer_id=8)
    about = partial(decision_about, 7, OUT)
    assert about([*of(abort, commit, commit), *elsewhere], lambda: False) == (commit, "")
    assert about(of(abort), lambda: False) == (abort, "")
    assert about(of(commit, abort), lambda: False) == (None, AMBIGUOUS)
    assert about(of(commit, abort), lambda: True) == (abort, "")
    assert about(elsewhere, lambda: True) == (None, UNKNOWN)


def test_a_later_decision_about_its_other_partitions_may_have_been_about_it() -> None:
    there = TopicPartition("out", 0)
    last = Decided(ID, 7, 3, Decision.COMMIT, frozenset([OUT, there]))
    about = partial(decision_about, 7, OUT, is_one=lambda: True)
    assert about([last, *of(Decision.COMMIT, partition=there)]) == (Decision.COMMIT, "")
    assert about([last, *of(Decision.ABORT, partition=there)]) == (None, CONTRADICTED)
