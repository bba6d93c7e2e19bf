"""Reads for requests, which wait for none."""

import threading
from collections.abc import Iterator

import pytest

from wasmline.local.process import wait_until
from wasmline_provider.plugin import background_reads
from wasmline_provider.plugin.background_reads import MAX_KNOWN, MAX_READS, BackgroundReads, ReadResult

READING = ReadResult(state="reading")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a slow read waits for."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> BackgroundReads:
    monkeypatch.setattr(background_reads, "WAIT_S", 0.01)
    return BackgroundReads()


def settled(reads: BackgroundReads, key: str, read: object) -> ReadResult:
    found: list[ReadResult] = []

    def is_settled() -> bool:
        found.append(reads.get("models", key, read, max_age_s=60))  # type: ignore[arg-type]
        return found[-1].state != "reading"

    assert wait_until(is_settled, 10)
    return found[-1]


def test_a_slow_read_is_waited_for_by_nobody_and_begun_once(reads: BackgroundReads, gate: threading.Event) -> None:
    calls: list[int] = []

    def read() -> str:
        calls.append(1)
        gate.wait()
        return "value"

    assert [reads.get("models", "key", read, max_age_s=60) for _ in range(3)] == [READING] * 3
    gate.set()
    assert settled(reads, "key", read) == ReadResult(state="ready", value="value")
    assert len(calls) == 1


def test_an_old_result_is_shown_while_it_is_read_again(reads: BackgroundReads, gate: threading.Event) -> None:
    assert settled(reads, "key", lambda: 1).value == 1
    assert reads.get("models", "key", lambda: 2, max_age_s=60).value == 1

    def slow() -> int:
        gate.wait()
        return 3

    assert reads.get("models", "key", slow, max_age_s=-1) == ReadResult(state="reading", value=1)


def test_a_failure_keeps_the_last_result_and_is_repeated_after_its_time(reads: BackgroundReads) -> None:
    assert settled(reads, "key", lambda: 1).value == 1

    def fail() -> int:
        raise OSError("away\x1b[31m")

    assert wait_until(lambda: reads.get("models", "key", fail, max_age_s=-1).state == "failed", 10)
    found = reads.get("models", "key", lambda: 2, max_age_s=60)
    assert found == ReadResult(state="failed", value=1, problem="OSError: away\\u001b[31m")
    assert wait_until(lambda: reads.get("models", "key", lambda: 2, max_age_s=-1).value == 2, 10)


def test_reads_and_results_are_bounded(reads: BackgroundReads, gate: threading.Event) -> None:
    begun: list[int] = []

    def read(number: int) -> None:
        begun.append(number)
        gate.wait()

    for number in range(MAX_READS + 3):
        reads.get("record", number, lambda number=number: read(number), max_age_s=60)  # type: ignore[misc]
    assert len(begun) == MAX_READS
    assert settled(reads, "key", lambda: 7).value == 7  # another kind of read
    gate.set()
    for number in range(MAX_KNOWN + 10):
        settled(reads, f"key {number}", lambda: None)
    assert len(reads._reads) <= MAX_KNOWN


def test_a_read_that_hangs_counts_as_failed_and_is_begun_again(
    reads: BackgroundReads, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_reads, "TIMEOUT_S", 0.05)
    assert reads.get("models", "key", gate.wait, max_age_s=60).state == "reading"
    assert wait_until(lambda: reads.get("models", "key", gate.wait, max_age_s=60).state == "failed", 10)
    assert wait_until(lambda: reads.get("models", "key", lambda: 2, max_age_s=-1).value == 2, 10)
    monkeypatch.setattr(background_reads, "MAX_THREADS", 1)
    assert reads.get("models", "other", lambda: 3, max_age_s=60).state == "reading"  # one hangs
