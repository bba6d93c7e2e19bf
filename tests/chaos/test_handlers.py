"""Handlers are slow, fail, or meet records that nobody can handle; the other keys go on, whatever dies meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.chaos.consumer_group import EXACTLY_ONCE, LONG_SESSION_MS, SESSION_MS, ConsumerHarness
from support.chaos.consumer_process import POISON
from support.rounds import ROUNDS, rounds
from wasmline.offset_maps import DEFAULT_LIMITS
from wasmline.testing.kafka import RunningKafka


@pytest.mark.parametrize(
    "delivery",
    [pytest.param({}, id="at least once"), pytest.param(EXACTLY_ONCE, id="transactions", marks=pytest.mark.long)],
)
def test_a_key_that_always_fails_goes_to_the_dead_letters_and_holds_up_no_other(
    kafka: RunningKafka, tmp_path: Path, delivery: dict[str, object]
) -> None:
    """Confluent's #196, #310, #65 and #248 (attempts without an end), #831 (one bad record stops its partition)."""
    options = {**delivery, "retry": {"delay_ms": 300, "max_attempts": 4}}
    with ConsumerHarness(kafka, tmp_path, options=options, sleep_ms=5, writes=True) as harness:
        harness.join(), harness.join()
        for _ in rounds():
            harness.write([b"stuck"] * 3)
            harness.produce(1_000)
            harness.wait(950)
            harness.until(harness.committed, "a first commit")
            assert max(len(metadata) for _, metadata in harness.committed().values()) < 400
            harness.kill(harness.random.choice(harness.members))
            harness.join()
        harness.finish()
        stuck = {where: 1 for where, key in harness.written.items() if key == b"stuck"}
        assert (harness.letters() if delivery else dict.fromkeys(harness.letters(), 1)) == stuck


@pytest.mark.parametrize(
    "delivery",
    [pytest.param({}, id="at least once", marks=pytest.mark.long), pytest.param(EXACTLY_ONCE, id="transactions")],
)
def test_poison_goes_to_the_dead_letters_at_once(
    kafka: RunningKafka, tmp_path: Path, delivery: dict[str, object]
) -> None:
    """Confluent's #304, #391 and #550: what cannot be read stops nobody, and what comes after it in its key is done."""
    with ConsumerHarness(
        kafka, tmp_path, options=delivery, sleep_ms=5, writes=True, session_ms=LONG_SESSION_MS
    ) as harness:
        harness.join(), harness.join()
        for _ in rounds(20 * ROUNDS):
            harness.produce(25)
            harness.produce(1, value=POISON)
        poison = dict.fromkeys(harness.poison, 1)
        harness.finish()
        assert len(poison) == 20 * ROUNDS
        assert harness.ledger.failures == 0
        assert (harness.letters() if delivery else dict.fromkeys(harness.letters(), 1)) == poison


def test_handlers_fail_now_and_then_while_members_come_and_go(kafka: RunningKafka, tmp_path: Path) -> None:
    options = {"retry": {"delay_ms": 50, "factor": 2.0, "max_attempts": 5}}
    with ConsumerHarness(
        kafka, tmp_path, options=options, sleep_ms=20, failing=15, session_ms=LONG_SESSION_MS
    ) as harness:
        harness.join(), harness.join()
        for _ in rounds(2 * ROUNDS):
            harness.produce(400)
            harness.wait(200)
            harness.settle()
            harness.leave(harness.members[0])
            harness.join()
        harness.finish()
        assert harness.ledger.failures > 50
        assert harness.ledger.again == 0
        assert not harness.letters()


@pytest.mark.long
def test_handlers_are_slower_than_a_session(kafka: RunningKafka, tmp_path: Path) -> None:
    """The group hears of a member while all its handlers are busy; who leaves waits for what is in flight."""
    with ConsumerHarness(kafka, tmp_path, sleep_ms=SESSION_MS * 4 // 3, keys=60) as harness:
        harness.join()
        harness.produce(30 * ROUNDS)
        harness.wait(5)
        harness.join()
        harness.wait(5)
        harness.leave(harness.members[0])
        harness.finish()
        assert harness.ledger.again == 0


def test_maps_that_are_too_large_for_a_broker_lose_nothing(kafka: RunningKafka, tmp_path: Path) -> None:
    """Confluent's #47, #53, #647 and #415 (the map outgrows the metadata): fewer records start until it shrinks."""
    options = {"retry": {"delay_ms": 3_600_000}, "buffer_records": 50_000}
    with ConsumerHarness(kafka, tmp_path, options=options, sleep_ms=0, partitions=1) as harness:
        harness.write([b"%s-%d" % (harness.random.choice([b"stuck", b"free"]), number) for number in range(25_000)])
        harness.join()
        harness.until(
            lambda: len(harness.committed().get(0, (0, ""))[1]) > DEFAULT_LIMITS.back_pressure_length,
            "a map that is nearly too large",
        )
        harness.kill(harness.members[0])
        (tmp_path / "unstuck").touch()
        harness.join()
        harness.wait(2_000)
        harness.kill(harness.members[0])
        harness.join()
        harness.finish()


@pytest.mark.long
def test_large_records_are_bounded_by_their_bytes(kafka: RunningKafka, tmp_path: Path) -> None:
    """Confluent's #832, #817 and #716 (out of memory): 160 MB in a topic, and a member that keeps 8 of them."""
    options, settings = {"buffer_bytes": 8 * 2**20}, {"queued.max.messages.kbytes": "4096"}
    with ConsumerHarness(kafka, tmp_path, options=options, settings=settings, sleep_ms=200, partitions=2) as harness:
        harness.produce(10)
        member = harness.join()
        harness.wait(10)
        before = peak_mb(member.pid)
        harness.produce(320, value=b"x" * 500_000)
        harness.wait(300)
        assert peak_mb(member.pid) - before < 80
        harness.finish()


def peak_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024
