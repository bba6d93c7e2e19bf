"""The outside ledger of supervised streams finds what must not be."""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.supervision.stream_ledger import COMMITS, KEYS, StreamLedger
from wasmline.control import DeploymentSpec, DriverClaim, LeaseWithdrawal, control_topics
from wasmline.documents import encode
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka.record_batch_headers import HEADER, PREFIX_BYTES

JOB = "job"


def made() -> StreamLedger:
    spec = DeploymentSpec(
        name=JOB, version="1.0.0", digest="sha256:" + "0" * 64, input_topic="in", output_topics=("out",)
    )
    return StreamLedger({JOB: spec})


def see(ledger: StreamLedger, topic: str, key: bytes, value: bytes, at_ms: int = 0) -> None:
    message = SimpleNamespace(topic=lambda: topic, key=lambda: key, value=lambda: value, timestamp=lambda: (1, at_ms))
    ledger.on_record(message, 0.0)


def put(ledger: StreamLedger, *numbers: int) -> None:
    for number in numbers:
        see(ledger, "out", *StreamLedger.record(number))


def claim(ledger: StreamLedger, run: str, driver: str, at_ms: int = 0, **batch: Any) -> None:
    made = DriverClaim(run=run, driver=driver, checkpoint="c", batch_id=1, deployment=None, **batch)
    see(ledger, control_topics.JOBS, b"job/batch", encode(made), at_ms)


def report(ledger: StreamLedger, run: str, state: JobState) -> None:
    see(ledger, control_topics.JOBS, f"job/report/{run}".encode(), encode(JobReport.now(JOB, run, state)))


def commit(ledger: StreamLedger, offset: int, at_ms: int = 0) -> None:
    group, topic = b"wasmline.job", b"in"
    key = struct.pack(">hh12sh2si", 1, len(group), group, len(topic), topic, 0)
    see(ledger, COMMITS, key, struct.pack(">hq", 3, offset), at_ms)


def test_a_history_without_a_fault_is_one() -> None:
    ledger = made()
    put(ledger, *range(3 * KEYS))
    for run, driver in (("r1", "a"), ("r2", "b")):
        claim(ledger, run, driver)
        claim(ledger, run, driver)
        report(ledger, run, JobState.RUNNING)
        report(ledger, run, JobState.FAILED)
    for offset in (1, 1, 7):
        commit(ledger, offset)
    assert (ledger.violations, ledger.missing(JOB, 3 * KEYS), ledger.reached(JOB)) == ([], 0, 2 * KEYS)


def test_outputs_that_are_there_twice_behind_others_or_missing_are_found() -> None:
    ledger = made()
    put(ledger, 0, KEYS, 0)
    assert ledger.violations == ["job: the output of 0 is there twice", f"job: 0 is behind {KEYS} of its key"]
    assert ledger.missing(JOB, 2 * KEYS) == 2 * KEYS - 2


def test_what_an_older_driver_writes_after_a_newer_one_s_claim_is_found() -> None:
    ledger = made()
    for run, driver in (("r1", "a"), ("r2", "b")):
        claim(ledger, run, driver)
    claim(ledger, "r1", "a")
    report(ledger, "r1", JobState.RUNNING)
    see(ledger, control_topics.JOBS, b"job/withdrawn", encode(LeaseWithdrawal(driver="a", epoch=1)))
    assert ledger.violations == [
        "job: a claims after b",
        "job: run r1 is running after a newer one's claim",
        "job: a withdraws a lease after a newer driver's claim",
    ]


def test_an_offset_that_goes_back_is_found() -> None:
    ledger = made()
    for offset in (7, 6):
        commit(ledger, offset)
    assert ledger.violations == ["('wasmline.job', 'in', 0) goes back from 7 to 6"]


@pytest.mark.parametrize(
    ("offset", "at_ms", "is_found"), [(5, 20, False), (9, 20, False), (9, 40, True), (12, 40, False)]
)
def test_a_commit_of_a_batch_that_the_newest_claim_has_not_begun_is_found(
    offset: int, at_ms: int, is_found: bool
) -> None:
    ledger = made()
    claim(ledger, "r1", "a", 10, mode="microbatch", offsets={0: 5}, ends={0: 9})
    claim(ledger, "r2", "b", 30, mode="microbatch", offsets={0: 10}, ends={0: 15})
    commit(ledger, offset, at_ms)
    assert ledger.check_commits() == {JOB: 1}
    assert len(ledger.violations) == is_found


@pytest.mark.parametrize("last_ms", [150, 250], ids=["before", "after"])
@pytest.mark.parametrize(
    ("topic", "body", "producers"),
    [
        (COMMITS, b"a record of wasmline.job", 1),
        (control_topics.JOBS, b'job/report/r1 {"state":"running"}', 0),
    ],
    ids=["commits", "reports"],
)
def test_a_producer_that_writes_after_a_newer_driver_has_claimed_its_checkpoint_is_found(
    tmp_path: Path, topic: str, body: bytes, producers: int, last_ms: int
) -> None:
    ledger = made()
    claim(ledger, "r1", "a", 10)
    claim(ledger, "r1", "a", 20)
    claim(ledger, "r2", "b", 190)
    claim(ledger, "r2", "b", 200)
    folder = tmp_path / f"{topic}-0"
    folder.mkdir()
    log = b"".join(_batch(offset, at_ms, body) for offset, at_ms in enumerate((100, last_ms)))
    (folder / "0.log").write_bytes(log)
    assert ledger.check_producers(tmp_path) == {JOB: producers}
    assert len(ledger.violations) == (last_ms > 200)


def _batch(offset: int, at_ms: int, body: bytes) -> bytes:
    length = HEADER.size - PREFIX_BYTES + len(body)
    return HEADER.pack(offset, length, 0, 2, 0, 0, 0, at_ms, at_ms, 7, 0, 0, 1) + body
