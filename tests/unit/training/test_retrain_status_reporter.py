"""When the status of retrain conditions is written, and that nothing about it delays or fails its caller."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from wasmline.control import RetrainCheck, RetrainStatus
from wasmline.errors import NotAuthorized
from wasmline.kafka import KafkaConfig
from wasmline.training import retrain_status_reporter
from wasmline.training.retrain_status_reporter import MAX_INTERVAL_S, RetrainStatusReporter

STATUS = RetrainStatus(
    model="eta",
    topic="features",
    champion=None,
    new_records=1,
    checks=(RetrainCheck(condition="new records", text="1 new records, fewer than 2", is_met=False),),
    expected_rmse=None,
    live_rmse=None,
    age_s=None,
    observed_ms=1,
)
MET = replace(STATUS, checks=(replace(STATUS.checks[0], is_met=True),))
DENIED = NotAuthorized("the topic _wasmline.jobs: grant its user an ACL on it", name="_wasmline.jobs")


class Cluster:
    """A cluster that keeps what is written, fails with ``error``, and answers only while ``answers`` is set."""

    def __init__(self) -> None:
        self.written: list[RetrainStatus] = []
        self.error: Exception | None = None
        self.tries = 0
        self.opened = 0
        self.answers = threading.Event()
        self.answers.set()

    def open(self, config: KafkaConfig, model: str) -> Cluster:
        self.opened += 1
        return self

    def write(self, status: RetrainStatus) -> None:
        self.tries += 1
        self.answers.wait()
        if self.error is not None:
            raise self.error
        self.written.append(status)

    def close(self) -> None:
        self.opened -= 1


class Scene:
    """A reporter, its cluster and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = Cluster()
        self.now = 1_000.0
        monkeypatch.setattr(retrain_status_reporter, "RetrainStatusTopic", self.cluster.open)
        self.reporter = RetrainStatusReporter(
            KafkaConfig({"bootstrap.servers": "broker:9092"}), "eta", clock=lambda: self.now
        )

    def report(self, status: RetrainStatus) -> None:
        """Report a status, and wait for what is written of it."""
        self.reporter.report(status)
        if (writing := self.reporter._writing) is not None:
            assert writing.wait(60)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(monkeypatch)
    yield made
    made.cluster.answers.set()
    made.reporter.close()
    assert made.cluster.opened == 0


def test_a_status_is_written_when_its_state_has_changed_and_every_minute(scene: Scene) -> None:
    later = replace(STATUS, new_records=2, observed_ms=2)
    for status in (STATUS, later, MET, MET, replace(MET, champion="1.0.0")):
        scene.report(status)
    assert scene.cluster.written == [STATUS, MET, replace(MET, champion="1.0.0")]
    scene.report(STATUS)
    scene.now += MAX_INTERVAL_S - 1
    scene.report(later)
    assert scene.cluster.written[3:] == [STATUS]
    scene.now += 1
    scene.report(later)
    assert scene.cluster.written[4:] == [later]


def test_an_error_is_logged_once_and_the_write_repeated_after_a_minute(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.cluster.error = DENIED
    for _ in range(3):
        for status in (STATUS, MET):
            scene.report(status)
        scene.now += MAX_INTERVAL_S
    assert scene.cluster.tries == 3, "a changed state does not repeat a write that fails"
    assert scene.cluster.opened == 1, "the same clients write again"
    scene.cluster.error = None
    scene.report(STATUS)
    scene.report(MET)
    assert scene.cluster.written == [STATUS, MET]
    [told] = [each.getMessage() for each in caplog.records]
    assert told.startswith("eta: the status of its retrain conditions cannot be written: NotAuthorized: the topic ")
    scene.cluster.error = DENIED
    scene.report(STATUS)
    with caplog.at_level(logging.WARNING):
        scene.report(STATUS)
    assert len(caplog.records) == 2, "the error is new after a success"


def test_an_error_that_nobody_expects_is_one_of_writing(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.cluster.error = MemoryError("no memory")
    scene.report(STATUS)
    scene.report(STATUS)
    assert [each.levelname for each in caplog.records] == ["WARNING"]


def test_a_cluster_that_does_not_answer_delays_nothing_and_gets_the_next_state_when_it_does(scene: Scene) -> None:
    scene.cluster.answers.clear()
    scene.reporter.report(STATUS)
    scene.now += 10 * MAX_INTERVAL_S
    for status in (MET, STATUS, MET):
        scene.reporter.report(status)
    assert scene.cluster.tries <= 1
    scene.cluster.answers.set()
    assert scene.reporter._writing is not None
    assert scene.reporter._writing.wait(60)
    scene.report(MET)
    assert scene.cluster.written == [STATUS, MET]


def test_the_end_waits_for_a_write_and_not_for_one_that_hangs(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.reporter.report(STATUS)
    scene.reporter.close()
    assert (scene.cluster.written, scene.cluster.opened) == ([STATUS], 0)
    scene.cluster.answers.clear()
    scene.reporter.report(MET)
    monkeypatch.setattr(retrain_status_reporter, "CLOSE_TIMEOUT_S", 0.01)
    scene.reporter.close()
    assert scene.cluster.written == [STATUS]
    scene.cluster.answers.set()
    assert scene.reporter._writing is not None
    assert scene.reporter._writing.wait(60)
