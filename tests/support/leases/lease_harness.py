"""A job in parallel mode on topics of its own, with or without Spark, and the books that are kept of it."""

from __future__ import annotations

import collections
import os
import pickle
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

from support import outputs
from support.chaos.group_progress import GroupProgress
from support.chaos.operator_decision import abort, hanging_in
from support.rounds import ROUNDS, stopped_for_operator
from wasmline.background_call import BackgroundCall
from wasmline.control import ClaimProducer, DriverClaim, JobTopic, StatusTopic
from wasmline.errors import HangingTransaction
from wasmline.job_offsets.offset_renewal import MAX_RENEWAL_INTERVAL_S
from wasmline.job_specs import FunctionSpec, JobSpec, StreamSpec
from wasmline.kafka import ConsumerGroups, KafkaConfig, Topics, producer, read_to_end
from wasmline.leases.lease import Lease
from wasmline.leases.lease_planner import LeasePlanner, LeaseRound, PlannerConfig
from wasmline.leases.lease_worker import LeaseWorker
from wasmline.local.process import wait_until
from wasmline.partition_status import PartitionStatus

TIMEOUT_S = 180.0 + 10.0 * ROUNDS
"""Seconds after which something that has to happen counts as missing."""

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
HANDLERS = FOLDER.parent / "handlers"
"""On the import path, as the modules of a user's handlers are."""


EXACTLY_ONCE: dict[str, Any] = {"delivery": "exactly_once", "commit_interval_ms": 50}


class Task:
    """A process that works on a lease."""

    def __init__(self, config: KafkaConfig, lease: Lease) -> None:
        self.lease = lease
        self.process = subprocess.Popen(
            [sys.executable, str(FOLDER / "lease_process.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "provider"), str(HANDLERS)))},
        )
        assert self.process.stdin is not None
        self.process.stdin.write(pickle.dumps((config, lease)))
        self.process.stdin.close()
        self.process.stdin = None

    def reason(self) -> str:
        """Wait for the end of its lease, and return why that was."""
        told, _ = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, told
        return told.decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


class LeaseHarness:
    """One job, which runs a function of ``lease_handlers`` unless the stream is told of another."""

    def __init__(
        self, config: KafkaConfig, folder: Path, *, partitions: int = 3, keys: int = 40, **stream: Any
    ) -> None:
        self.config = config
        self.topic = f"in-{uuid.uuid4()}"
        self.output = f"{self.topic}.out"
        self.letters = f"{self.topic}.letters"
        for topic, count in ((self.topic, partitions), (self.output, 2), (self.letters, 1)):
            Topics(config).create(topic, count)
        self.written: dict[tuple[int, int], bytes] = {}
        self._unplaced = 0
        self.jobs = JobTopic(config)
        self._partitions = partitions
        self._keys = keys
        self._is_exact = stream.get("delivery") == "exactly_once"
        self._producer = producer(config)
        function = stream.pop("function", "lease_handlers:copy")
        if "transform" not in stream:
            stream["function"] = FunctionSpec(function=function, topic=self.topic, dead_letter_topic=self.letters)
        spec = StreamSpec(mode="parallel", **{"trigger_interval": "1 second", **stream})
        self.job = JobSpec(job=f"job-{uuid.uuid4().hex[:8]}", run="run-1", storage=str(folder), stream=spec)
        self.jobs.submit(self.job)
        self.tasks: list[Task] = []
        self._lessors: list[LeasePlanner] = []
        self._letting: BackgroundCall[None] | None = None
        self.drivers: dict[subprocess.Popen[bytes], Path] = {}
        """Drivers that must not end, with their logs."""

    # -- the records --------------------------------------------------------------------------------------------------

    def produce(self, records: int, value: bytes = b"value") -> None:
        """Write records whose keys take turns; those of a key go to one partition."""

        def delivered(error: Any, message: Any) -> None:
            assert error is None
            self.wrote(message)

        for number in range(records):
            key = b"key-%d" % (number % self._keys)
            self._producer.produce(
                self.topic, value, key, partition=crc32(key) % self._partitions, on_delivery=delivered
            )
            self._producer.poll(0)
        assert self._producer.flush(TIMEOUT_S) == 0

    def wrote(self, message: Any) -> None:
        """Take note of a record that is in the topic.

        A producer that repeats a request whose answer was lost is told that the record is there, and not where.
        """
        if message.offset() is None or message.offset() < 0:
            self._unplaced += 1
        else:
            self.written[message.partition(), message.offset()] = message.key()

    def place(self) -> None:
        """Take the topic's records as those that were written: more than the producer knows of, where a leader died.

        One that is not idempotent repeats requests, and one that is may write a record twice as it begins a new epoch
        (librdkafka's issue 4953). What is there twice has two outputs.
        """
        found = {(each.partition(), each.offset()): each.key() or b"" for each in read_to_end(self.config, self.topic)}
        assert found.items() >= self.written.items()
        assert len(found) >= len(self.written) + self._unplaced
        self.written, self._unplaced = found, 0  # type: ignore[assignment]

    def outputs(self) -> dict[bytes, list[str]]:
        """Return by key what a read_committed reader sees, in order."""
        return outputs.outputs(self.config, self.output)

    def expected(self) -> dict[bytes, list[str]]:
        """Return what ``outputs`` is if each record's output is there once and those of a key are in order."""
        return outputs.expected(self.written)

    def workers(self) -> list[int]:
        """Return the processes that wrote, whoever wrote last first."""
        written = sorted(read_to_end(self.config, self.output), key=lambda each: each.timestamp()[1], reverse=True)
        return list(dict.fromkeys(int(dict(each.headers() or [])["worker"] or 0) for each in written))

    def seen(self) -> int:
        """Return the number of outputs."""
        return sum(map(len, self.outputs().values()))

    def done(self) -> int:
        """Return the number of records that have an output."""
        return sum(map(len, outputs.first_ones(self.outputs()).values()))

    def finish(self) -> None:
        """See each record's output: once, in the order of its key, or at least once, the first time in that order."""
        self.place()
        self.until(lambda: self.done() >= len(self.written), "the outputs of all records")
        seen, expected = self.outputs(), self.expected()
        if self._is_exact:
            doubled = {each: count for row in seen.values() for each, count in Counter(row).items() if count > 1}
            assert not doubled, list(doubled.items())[:10]
        wanted, found = ({each for row in rows.values() for each in row} for rows in (expected, seen))
        assert found == wanted, f"unexpected: {sorted(found - wanted)[:10]}; missing: {sorted(wanted - found)[:10]}"
        assert outputs.first_ones(seen) == expected, "outputs of a key are not in its order"

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Wait until something has happened, or the job has ended."""
        seen = wait_until(lambda: happened() or self._has_ended(), TIMEOUT_S)
        if self._letting is not None and self._letting.wait(0):
            self._letting.result()
        if not seen or self._has_ended():
            logs = "".join(log.read_text(errors="replace")[-4_000:] for log in self.drivers.values())
            raise AssertionError(f"in vain: {what}; seen {self.seen()} of {len(self.written)}; {logs}")

    def _has_ended(self) -> bool:
        is_over = self._letting is not None and self._letting.wait(0)
        return is_over or any(driver.poll() is not None for driver in self.drivers)

    def committed(self) -> int:
        return sum(ConsumerGroups(self.config).committed(self.job.group, self.topic).values())

    def statuses(self) -> list[PartitionStatus]:
        log = StatusTopic(self.config)
        found = log.of(self.job.job)
        log.close()
        return found

    # -- without Spark ------------------------------------------------------------------------------------------------

    def lessor(
        self, driver: str = "driver", *, max_renewal_interval_s: float = MAX_RENEWAL_INTERVAL_S, **planned: Any
    ) -> LeasePlanner:
        """Return who gives leases out for a driver that has claimed the job just now."""
        planned = {"slots": 2, "checkpoint": "c", **planned}
        claim = DriverClaim(
            run=self.job.run, mode="parallel", driver=driver, checkpoint="c", batch_id=-1, deployment=None
        )
        claimant = ClaimProducer(self.config, self.job.job)
        claimant.claim(claim)
        claimant.close()
        behalf = PlannerConfig(job=self.job.job, run=self.job.run, driver=driver, topic=self.topic, **planned)
        assert self.job.stream is not None
        interval, transform = max_renewal_interval_s, self.job.stream.transform
        self._lessors.append(LeasePlanner(self.config, behalf, transform, max_renewal_interval_s=interval))
        return self._lessors[-1]

    @contextmanager
    def letting(self, **planned: Any) -> Iterator[None]:
        """Run the job with leases in this process, one at a time, until it is stopped at the end.

        Where it ends with HangingTransaction, an operator decides and runs it again.
        """

        def let() -> None:
            while not stopped.is_set():
                try:
                    self._let(self.lessor(**planned), stopped)
                except HangingTransaction as error:
                    self._decide(error)

        stopped = threading.Event()
        self._letting = BackgroundCall(let)
        try:
            yield
        finally:
            stopped.set()
            self.stop()
            assert self._letting.wait(TIMEOUT_S)
            self._letting.result()
            self._letting = None

    def _let(self, lessor: LeasePlanner, stopped: threading.Event) -> None:
        grant = NOTHING
        while not stopped.is_set():
            before, grant = grant, lessor.next(grant)
            for lease in lessor.leases(grant) if grant != before else ():
                collections.deque(LeaseWorker(self.config, lease).run(), 0)

    def _decide(self, error: HangingTransaction) -> None:
        hanging = hanging_in(f"HangingTransaction: {error}")
        assert hanging
        stopped_for_operator()
        with closing(GroupProgress(self.config, self.job.group, self.topic, self._partitions)) as progress:
            hanging.require_unseen(self.outputs(), progress.left())
        abort(self.config, hanging, self.job.group)

    def work(self, leases: Iterable[Lease]) -> list[Task]:
        """Start a process for each lease."""
        tasks = [Task(self.config, lease) for lease in leases]
        self.tasks += tasks
        return tasks

    def stop(self) -> None:
        self.jobs.stop(self.job.job, self.job.run)

    def order(self, **changes: Any) -> None:
        """Order the same run with a changed stream."""
        assert self.job.stream is not None
        self.job = replace(self.job, stream=replace(self.job.stream, **changes))
        self.jobs.submit(self.job)

    def close(self) -> None:
        for task in self.tasks:
            task.kill()
        for lessor in self._lessors:
            lessor.close()
        self.jobs.close()
        self._producer.close()

    def __enter__(self) -> LeaseHarness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Harnesses = Callable[..., LeaseHarness]
"""Makes a job of these stream options."""


@contextmanager
def made(config: KafkaConfig, folder: Path) -> Iterator[Harnesses]:
    """Let jobs be made, and close them at the end."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(LeaseHarness(config, folder, **options))


NOTHING = LeaseRound()
