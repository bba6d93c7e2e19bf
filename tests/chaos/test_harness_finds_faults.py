"""The harness can fail: what it is there to find, it finds."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer

from support import lost_markers, rounds
from support.chaos.call_ledger import Journal, Ledger, Left
from support.chaos.consumer_group import LONG_SESSION_MS, ConsumerHarness
from support.leases.lease_harness import EXACTLY_ONCE, LeaseHarness
from wasmline.kafka import read_to_end
from wasmline.kafka.hanging_transactions import ENDED_STATES
from wasmline.kafka.transaction_log import CONSUMER_OFFSETS
from wasmline.kafka.transaction_requests import TransactionRequests
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition
from wasmline.transactional_ids import transactional_id

OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)

NOTHING = {0: Left(0, -1, frozenset())}


def test_a_member_that_ignores_the_map_is_found_out(kafka: RunningKafka, tmp_path: Path) -> None:
    with ConsumerHarness(kafka, tmp_path, sleep_ms=100, keys=100, session_ms=LONG_SESSION_MS) as harness:
        harness.produce(400)
        harness.join()
        harness.wait(100)
        harness.leave(harness.members[0])
        harness.join(ignores_maps=True)
        with pytest.raises(AssertionError, match="was done once more"):
            harness.finish()


def test_a_round_counts_once_its_body_is_through_and_is_told_by_another_process(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(rounds, "_scenarios", defaultdict(rounds.Scenario))
    monkeypatch.setattr(rounds, "_collected", {})
    numbers = rounds.rounds(3)
    assert [next(numbers), next(numbers), next(numbers)] == [0, 1, 2]
    rounds.resumed_after(2.5)
    name = request.node.nodeid
    report = pytest.TestReport(name, ("", 0, ""), {}, "passed", None, "teardown")
    rounds.pass_on(report)
    rounds.collect(pytest.TestReport._from_json(json.loads(json.dumps(report._to_json()))))
    assert list(rounds.summary()) == [
        f"2 rounds of {name}, at work again after 2.5 s at most",
        "2 rounds of 1 scenarios",
    ]


@pytest.mark.long
def test_a_job_of_leases_goes_on_once_an_operator_has_decided(stoppable_kafka: RunningKafka, tmp_path: Path) -> None:
    """The markers of a commit are lost, and later those of an abort as well: which of them decided is not known."""
    config = stoppable_kafka.config
    with LeaseHarness(config, tmp_path, partitions=1, keys=1, **EXACTLY_ONCE) as harness:
        harness.produce(10)
        with harness.letting(slots=1):
            harness.finish()
        harness.order()
        outputs = {
            TopicPartition(harness.output, each.partition() or 0) for each in read_to_end(config, harness.output)
        }
        name = transactional_id(harness.job.transactional_id, TopicPartition(harness.topic, 0))
        lose_last_markers(stoppable_kafka, name, {*outputs, OFFSETS})
        writer = Producer(config.client(**{"transactional.id": name}))
        writer.init_transactions(30)
        writer.begin_transaction()
        for topic, partition in outputs:
            writer.produce(topic, b"aborted", partition=partition)
        group = Consumer(config.client(**{"group.id": harness.job.group}))
        places = [confluent_kafka.TopicPartition(harness.topic, 0, 11)]
        writer.send_offsets_to_transaction(places, group.consumer_group_metadata(), 30)
        writer.abort_transaction(30)
        group.close()
        lose_last_markers(stoppable_kafka, name, {*outputs, OFFSETS})
        harness.produce(10)
        with harness.letting(slots=1):
            harness.finish()
    assert rounds._scenario().stops == 1


def lose_last_markers(running: RunningKafka, name: str, partitions: Iterable[TopicPartition]) -> None:
    """Lose the newest markers of a transactional id once its transaction is over, and restart the broker."""
    with TransactionRequests(running.config, 30) as requests:
        producer_id = -1

        def is_over() -> bool:
            nonlocal producer_id
            state = requests.describe(name)
            producer_id = state.producer_id if state else -1
            return state is not None and state.state in ENDED_STATES

        assert wait_until(is_over, 30)
    running.local.stop_node(1)
    for partition in partitions:
        lost_markers.lose(running.local, partition, lost_markers.last_marker(producer_id))
    running.local.start_node(1)


class Book:
    """A ledger of records 0 to 3 of one partition and key, and who writes in it."""

    def __init__(self, folder: Path) -> None:
        self.ledger = Ledger(folder / "journal", window=10)
        for offset in range(4):
            self.ledger.expect(0, offset, b"key")
        self._journal = Journal(folder / "journal")

    def write(self, *events: str) -> list[str]:
        for event in events:
            self._journal.write(event[0], 0, int(event[1:]), b"key")
        self.ledger.read()
        return self.ledger.wrong


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


def test_all_in_order_is_right(book: Book) -> None:
    assert book.write("S0", "F0", "S0", "D0", "S1", "E1", "S2", "E2", "S3", "E3") == []
    assert book.ledger.missing == 0
    assert book.ledger.lost() == []


def test_a_record_that_is_missing_is_lost(book: Book) -> None:
    book.write("S0", "E0", "S1")
    assert book.ledger.missing == 3
    assert book.ledger.lost() == [(0, 1), (0, 2), (0, 3)]


def test_two_at_once_is_wrong(book: Book) -> None:
    (wrong,) = book.write("S0", "S0")
    assert "while others were at it" in wrong


def test_a_record_before_its_turn_is_wrong(book: Book) -> None:
    (wrong,) = book.write("S0", "F0", "S1")
    assert "that come first" in wrong


def test_a_record_that_is_done_again_is_wrong_unless_it_was_not_committed(book: Book) -> None:
    book.write("S0", "E0", "S1", "E1", "S2")
    book.ledger.ended(os.getpid(), {0: Left(0, 1, frozenset([0]))})
    assert book.write("S0", "E0") == []
    assert book.ledger.again == 1
    (wrong,) = book.write("S1", "E1")
    assert "0@1 of key 'key' was done once more" in wrong


def test_finishing_long_before_the_end_and_not_committing_is_wrong(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "journal", window=0)
    ledger.expect(0, 0, b"key")
    Journal(tmp_path / "journal").write("E", 0, 0, b"key")
    with (tmp_path / "journal").open("a") as file:
        file.write("S 1 0 0 1.0 00\nE 1 0 0 1.0 00\n")
    ledger.ended(1, NOTHING)
    assert "not committed" in ledger.wrong[-1]


def test_a_member_that_ended_for_an_operator_may_leave_what_is_uncommitted_for_long_and_no_other(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path / "journal", window=0)
    for partition in (0, 1):
        ledger.expect(partition, 0, b"key")
    with (tmp_path / "journal").open("a") as file:
        for partition in (0, 1):
            file.write(f"S {partition} {partition} 0 1.0 00\nE {partition} {partition} 0 1.0 00\n")
    ledger.ended(0, NOTHING, hanging=True)
    ledger.ended(1, NOTHING)
    (wrong,) = ledger.wrong
    assert wrong.startswith("1@0 was done")


def test_what_is_done_while_brokers_are_away_may_be_uncommitted_for_long(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "journal", window=0)
    ledger.cut_off()
    since = time.monotonic()
    with (tmp_path / "journal").open("a") as file:
        for partition, done in ((0, since - 1), (1, since)):
            ledger.expect(partition, 0, b"key")
            file.write(f"S 1 {partition} 0 {done} 00\nE 1 {partition} 0 {done} 00\n")
    ledger.ended(1, NOTHING)
    (wrong,) = ledger.wrong
    assert wrong.startswith("0@0 was done")


def test_who_reopens_after_a_freeze_may_abort_what_is_not_committed_and_nothing_else(book: Book) -> None:
    book.write("S0", "E0", "S1", "E1")
    book.ledger.reopens({0: Left(1, 0, frozenset())})
    assert book.write("S2", "E2", "S1", "E1", "S2", "E2") == []
    book.ledger.heard(1)
    assert book.ledger.again == 2
    wrong = book.write("S3", "E3", "S0", "E0", "S3", "E3")
    assert [each.split()[0] for each in wrong] == ["0@0", "0@3"]


def test_of_a_partition_without_a_commit_everything_may_be_done_again(book: Book) -> None:
    book.write("S0", "E0")
    book.ledger.forget({})
    assert book.write("S0", "E0") == []


def test_leaving_with_a_record_in_hand_is_wrong(book: Book) -> None:
    book.write("S0")
    book.ledger.ended(os.getpid(), None)
    assert "left while it had a record" in book.ledger.wrong[0]
