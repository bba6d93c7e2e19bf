"""Members come, go, die and freeze; no record is lost, none runs twice but within the bound, and each key in order."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from support.chaos.consumer_group import EXACTLY_ONCE, LONG_SESSION_MS, SESSION_MS, ConsumerHarness
from support.rounds import ROUNDS, rounds
from wasmline.testing.kafka import RunningKafka


@pytest.mark.parametrize(
    ("handler", "options", "settings"),
    [
        pytest.param("one", {"buffer_records": 60}, None, id="threads"),
        pytest.param("asynchronous", {}, None, id="asyncio", marks=pytest.mark.long),
        pytest.param("several", {"batch_size": 8}, None, id="batches", marks=pytest.mark.long),
        pytest.param("wasm", {"batch_size": 8}, None, id="Wasm", marks=pytest.mark.long),
        pytest.param("columns", {"batch_size": 20}, None, id="columns", marks=pytest.mark.long),
        pytest.param("columns", {**EXACTLY_ONCE, "batch_size": 20}, None, id="columns, transactions"),
        pytest.param("one", EXACTLY_ONCE, None, id="transactions"),
        pytest.param("one", {}, {"partition.assignment.strategy": "range"}, id="eager", marks=pytest.mark.long),
        pytest.param("one", {}, {"group.protocol": "consumer"}, id="broker assigns", marks=pytest.mark.long),
        pytest.param(
            "one",
            EXACTLY_ONCE,
            {"group.protocol": "consumer"},
            id="broker assigns, transactions",
            marks=pytest.mark.long,
        ),
    ],
)
def test_members_join_and_leave_every_half_second(
    kafka: RunningKafka,
    tmp_path: Path,
    handler: str,
    options: dict[str, object],
    settings: dict[str, str] | None,
) -> None:
    """Confluent's #857 (paused for ever after a rebalance), #826 (loss on close), #875 and #909 (a record skipped, then
    a stall), #894 and #893 (a commit that goes back), #62 (the first record skipped), #777 and #365 (what is in flight
    runs twice), #541 (transactions lock up in a rebalance). All leave in order: nothing at all runs twice.
    """
    with ConsumerHarness(
        kafka,
        tmp_path,
        options=options,
        settings=settings,
        handler=handler,
        sleep_ms=30,
        writes=True,
        session_ms=LONG_SESSION_MS,
    ) as harness:
        harness.join()
        harness.produce(500)
        harness.wait(50)
        for _ in rounds(6 * ROUNDS):
            harness.produce(100)
            harness.left()
            if len(harness.members) < 3:
                harness.join()
            else:
                harness.leave(harness.random.choice(harness.members))
            time.sleep(0.5)
        harness.finish()
        assert harness.ledger.again == 0
        assert harness.outputs() == harness.expected()


def test_a_member_that_leaves_while_the_group_waits_for_another_is_gone_once_that_has_come(
    kafka: RunningKafka, tmp_path: Path
) -> None:
    """Else the group would wait for it until its session times out. It has no partition, as one that has just come."""
    with ConsumerHarness(kafka, tmp_path, partitions=1, session_ms=LONG_SESSION_MS) as harness:
        harness.produce(200)
        late = harness.join()
        harness.wait(200)
        leaving = harness.join()
        harness.settle()
        late.process.send_signal(signal.SIGSTOP)
        harness.join()
        harness.await_rebalance()
        time.sleep(1)  # the one that leaves has asked to join once more, and is not answered
        leaving.process.terminate()
        time.sleep(1)
        late.process.send_signal(signal.SIGCONT)
        harness.leave(leaving)
        left = time.monotonic()
        harness.settle()
        assert time.monotonic() - left < LONG_SESSION_MS / 2_000
        harness.finish()
        assert harness.ledger.again == 0


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        pytest.param("one", {}, id="at least once", marks=pytest.mark.long),
        pytest.param("one", EXACTLY_ONCE, id="transactions"),
        pytest.param("wasm", {"batch_size": 8}, id="Wasm", marks=pytest.mark.long),
        pytest.param("wasm", {**EXACTLY_ONCE, "batch_size": 8}, id="Wasm, transactions", marks=pytest.mark.long),
        pytest.param("columns", {"batch_size": 20}, id="columns", marks=pytest.mark.long),
        pytest.param("columns", {**EXACTLY_ONCE, "batch_size": 20}, id="columns, transactions"),
    ],
)
def test_members_are_killed_in_mid_flight(
    kafka: RunningKafka, tmp_path: Path, handler: str, options: dict[str, object]
) -> None:
    """What was in flight runs again, and so does what was finished since the last commit; #803 (transactions stall).

    In transactions one commit follows the other, so that a kill mostly meets an open one.
    """
    if "delivery" in options:
        options = {**options, "commit_interval_ms": 1}
    with ConsumerHarness(kafka, tmp_path, options=options, handler=handler, sleep_ms=20, writes=True) as harness:
        harness.join(), harness.join()
        for _ in rounds():
            harness.produce(1_000)
            harness.wait(200)
            victims = harness.random.sample(harness.members, harness.random.choice([1, 2]))
            harness.kill(*victims)
            for _ in victims:
                harness.join()
        harness.finish()
        harness.require_outputs()


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, id="at least once", marks=pytest.mark.long), pytest.param(EXACTLY_ONCE, id="transactions")],
)
def test_a_member_is_frozen_past_its_session_and_comes_back(
    kafka: RunningKafka, tmp_path: Path, options: dict[str, object]
) -> None:
    with ConsumerHarness(kafka, tmp_path, options=options, sleep_ms=20, writes=True) as harness:
        harness.join(), harness.join()
        for _ in rounds():
            harness.produce(1_500)
            harness.wait(200)
            frozen = harness.random.choice(harness.members)
            harness.freeze(frozen)
            time.sleep(SESSION_MS / 1_000 + 1)
            harness.wait(200)
            harness.thaw(frozen)
            harness.produce(300)
            harness.wait(500)
        harness.finish()
        harness.require_outputs()
