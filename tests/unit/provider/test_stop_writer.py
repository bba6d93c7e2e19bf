"""Stop requests of one moment in one transaction, tried again until they are written or withdrawn."""

import queue
import threading
from collections.abc import Callable, Mapping

from wasmline.control import StoppedBy
from wasmline.errors import BrokerUnavailable
from wasmline.local.process import wait_until
from wasmline.restart_policy import RestartPolicy
from wasmline_provider.stop_writer import StopWriter

WAIT_S = 10.0
AT_ONCE = RestartPolicy(first_delay_s=0.001, max_delay_s=0.001)


class Stopper:
    """Keeps what it writes; the first writing waits for ``go``, and so many ``failures`` come first: before anything is
    decided, or after it, if ``answers`` are what is missing.
    """

    def __init__(self, failures: int = 0, *, answers: bool = False) -> None:
        self.failures = failures
        self.answers = answers
        self.go = threading.Event()
        self.begun = threading.Event()
        self.written: list[tuple[StoppedBy, dict[str, str]]] = []
        self.open_now = 0
        self.thread: threading.Thread | None = None

    def open(self) -> "Stopper":
        self.open_now += 1
        return self

    def stop_runs(
        self, runs: Mapping[str, str], *, by: StoppedBy, skip_ended: bool, is_requested: Callable[[str], bool]
    ) -> set[str]:
        assert skip_ended
        self.thread = threading.current_thread()
        self.begun.set()
        assert self.go.wait(WAIT_S)
        if self.failures and not self.answers:
            self._fail()
        decided = {job: run for job, run in runs.items() if is_requested(job)}
        if self.failures:
            self._fail()
        if decided:
            self.written.append((by, decided))
        return set()

    def _fail(self) -> None:
        self.failures -= 1
        raise BrokerUnavailable("no broker answered", bootstrap_servers="nowhere:1")

    def close(self) -> None:
        self.open_now -= 1

    @property
    def has_ended(self) -> bool:
        return self.open_now == 0 and self.thread is not None and not self.thread.is_alive()


def test_what_waits_while_one_is_written_is_written_together() -> None:
    stopper = Stopper()
    writer = StopWriter(stopper.open)
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    writer.request("job-0", "run", answers.put, by="user")
    assert stopper.begun.wait(WAIT_S)
    for number in range(1, 100):
        writer.request(f"job-{number}", "run", answers.put, by="user")
    stopper.go.set()
    assert [answers.get(timeout=WAIT_S) for _ in range(100)] == [None] * 100
    assert [len(runs) for _, runs in stopper.written] == [1, 99]
    assert wait_until(lambda: stopper.has_ended, WAIT_S)


def test_two_runs_of_one_job_are_both_stopped_and_a_user_s_request_is_the_last() -> None:
    stopper = Stopper()
    writer = StopWriter(stopper.open)
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    writer.request("first", "run", answers.put, by="user")
    assert stopper.begun.wait(WAIT_S)
    for run, by in (("old", "user"), ("new", "user"), ("new", "system")):
        writer.request("job", run, answers.put, by=by)  # type: ignore[arg-type]
    stopper.go.set()
    assert [answers.get(timeout=WAIT_S) for _ in range(4)] == [None] * 4
    assert stopper.written[1:] == [("system", {"job": "new"}), ("user", {"job": "old"}), ("user", {"job": "new"})]


def test_a_request_is_tried_again_and_its_errors_are_told() -> None:
    stopper = Stopper(failures=2)
    stopper.go.set()
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    StopWriter(stopper.open, delays=AT_ONCE).request("job", "run", answers.put, by="system")
    told = [answers.get(timeout=WAIT_S) for _ in range(3)]
    assert [type(each) for each in told] == [BrokerUnavailable, BrokerUnavailable, type(None)]
    assert stopper.written == [("system", {"job": "run"})]


def test_a_request_that_is_withdrawn_is_not_written_later() -> None:
    stopper = Stopper(failures=1)
    writer = StopWriter(stopper.open, delays=RestartPolicy(first_delay_s=3_600, max_delay_s=3_600))
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    request = writer.request("job", "run", answers.put, by="user")
    stopper.go.set()
    assert isinstance(answers.get(timeout=WAIT_S), BrokerUnavailable)
    assert request.cancel()
    assert not request.cancel()
    assert wait_until(lambda: stopper.has_ended, WAIT_S)
    assert stopper.written == []


def test_a_request_that_is_withdrawn_while_the_cluster_is_waited_for_is_not_written_and_the_others_are() -> None:
    stopper = Stopper()
    writer = StopWriter(stopper.open)
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    first = writer.request("first", "run", answers.put, by="user")
    assert stopper.begun.wait(WAIT_S)
    second = writer.request("second", "run", answers.put, by="user")
    twice = [writer.request("twice", "run", answers.put, by="user") for _ in range(2)]
    assert first.cancel()
    assert twice[0].cancel()
    stopper.go.set()
    assert wait_until(lambda: stopper.has_ended, WAIT_S)
    assert stopper.written == [("user", {"second": "run", "twice": "run"})]
    assert not second.cancel(), "it was written"


def test_a_request_that_is_withdrawn_after_it_was_decided_may_still_be_written_and_is_not_tried_again() -> None:
    stopper = Stopper(failures=1, answers=True)
    writer = StopWriter(stopper.open, delays=RestartPolicy(first_delay_s=3_600, max_delay_s=3_600))
    answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
    request = writer.request("job", "run", answers.put, by="user")
    stopper.go.set()
    assert isinstance(answers.get(timeout=WAIT_S), BrokerUnavailable)
    assert not request.cancel()
    assert wait_until(lambda: stopper.has_ended, WAIT_S)
    assert stopper.written == []
