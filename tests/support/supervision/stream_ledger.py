"""What an outsider sees of streams: their outputs, their drivers' claims and reports, and their groups' commits."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from wasmline.control import DeploymentSpec, DriverClaim, LeaseWithdrawal, control_topics
from wasmline.documents import decode
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka.record_batch_headers import HEADER, batches

COMMITS = "__consumer_offsets"

KEYS = 17


class Producer(NamedTuple):
    """A producer of commits or reports, and the times of its first and last, in milliseconds."""

    id: int
    epoch: int
    first_ms: int
    last_ms: int


class StreamLedger:
    """Reads the records that streams and their drivers write. What must not be is in ``violations``, as sentences.

    - Each input's output is there once, and those of a key are in its order.
    - Once a driver has claimed a job, no older one claims it or withdraws a lease, no older run reports that it runs,
      and none that has reported its end does without another driver's claim.
    - A group's offset of a partition never goes back. Once a driver has claimed its checkpoint, which it does after it
      has fenced the older ones, no producer commits, or reports that the job runs, that did so before, and
      micro-batches commit only what their newest claim has begun. The log does not tell which task has opened a new
      producer: of leases, a commit by one that an older driver's task has opened is seen by the outputs only.
    """

    def __init__(self, streams: Mapping[str, DeploymentSpec]) -> None:
        """``streams``: the deployment of each job, an identity of values, each of which is a number."""
        self.violations: list[str] = []
        self.drivers: dict[str, list[str]] = {job: [] for job in streams}
        """The drivers that have claimed a job, in their order."""
        self._jobs = {spec.output_topics[0]: job for job, spec in streams.items()}
        self._seen: dict[str, set[int]] = {job: set() for job in streams}
        self._last: dict[tuple[str, int], int] = {}
        """The last value of a job's key."""
        self._runs: dict[str, list[str]] = {job: [] for job in streams}
        self._claims: dict[str, list[tuple[int, DriverClaim]]] = {job: [] for job in streams}
        """The claims of a job, each with its time in Unix milliseconds."""
        self._claimed_ms: dict[str, dict[str, int]] = {job: {} for job in streams}
        """When each driver has claimed its checkpoint."""
        self._ended: dict[str, str] = {}
        """The last driver of each run that has reported its end."""
        self._offsets: dict[tuple[str, str, int], int] = {}
        self._commits: dict[str, list[tuple[int, int, int]]] = {job: [] for job in streams}
        """The commits of a job: time in Unix milliseconds, partition, offset."""

    @staticmethod
    def record(number: int) -> tuple[bytes, bytes]:
        """Return an input, with a number that counts from 0."""
        return b"key-%d" % (number % KEYS), b"%d" % number

    def reached(self, job: str) -> int:
        """Return a number that every key has an output of, or of a later one; -1 if one has none."""
        return min(self._last.get((job, key), -1) for key in range(KEYS))

    def missing(self, job: str, written: int) -> int:
        """Return how many outputs of the first ``written`` inputs are not there."""
        return written - len(self._seen[job])

    def on_record(self, message: Any, _: float) -> None:
        """Take a record of an output topic, of the job topic or of the groups' offsets."""
        topic = message.topic()
        if topic in self._jobs:
            self._output(self._jobs[topic], message.key(), int(message.value()))
        elif topic == control_topics.JOBS and message.value() is not None:
            job, _, what = message.key().decode().partition("/")
            if job in self.drivers:
                self._control(job, what, message.value(), message.timestamp()[1])
        elif topic == COMMITS and message.value() is not None:
            self._commit(message.key(), message.value(), message.timestamp()[1])

    def _output(self, job: str, key: bytes, number: int) -> None:
        if number in self._seen[job]:
            self.violations.append(f"{job}: the output of {number} is there twice")
        self._seen[job].add(number)
        place = (job, int(key.removeprefix(b"key-")))
        if number < self._last.get(place, -1):
            self.violations.append(f"{job}: {number} is behind {self._last[place]} of its key")
        self._last[place] = max(number, self._last.get(place, -1))

    def _control(self, job: str, what: str, value: bytes, at_ms: int) -> None:
        if what == "batch":
            self._claim(job, decode(DriverClaim, value), at_ms)
        elif what == "withdrawn":
            driver = decode(LeaseWithdrawal, value).driver
            if driver in self.drivers[job][:-1]:
                self.violations.append(f"{job}: {driver} withdraws a lease after a newer driver's claim")
        elif what.startswith("report/"):
            report = decode(JobReport, value)
            self._end(job, report)
            if report.run in self._runs[job][:-1] and not report.state.final:
                self.violations.append(f"{job}: run {report.run} is {report.state} after a newer one's claim")
            elif report.state is JobState.FAILED and report.error == "ProgressLost":
                self.violations.append(f"{job}: {report.message}")

    def _end(self, job: str, report: JobReport) -> None:
        driver = self.drivers[job][-1] if self.drivers[job] else ""
        if report.state is JobState.STARTING:
            self._ended.pop(report.run, None)
        elif report.state.final:
            self._ended[report.run] = driver
        elif self._ended.get(report.run) == driver:
            self.violations.append(f"{job}: run {report.run} is {report.state} after its end, without a claim")

    def _claim(self, job: str, claim: DriverClaim, at_ms: int) -> None:
        drivers, runs = self.drivers[job], self._runs[job]
        self._claims[job].append((at_ms, claim))
        if claim.driver not in drivers:
            drivers.append(claim.driver)
        elif claim.driver != drivers[-1]:
            self.violations.append(f"{job}: {claim.driver} claims after {drivers[-1]}")
        else:
            self._claimed_ms[job].setdefault(claim.driver, at_ms)
        if claim.run not in runs:
            runs.append(claim.run)

    def _commit(self, key: bytes, value: bytes, at_ms: int) -> None:
        version, fields = _fields(key)
        if version > 1:
            return  # a member's record
        group, topic, partition = fields
        _, offset = struct.unpack_from(">hq", value)
        place = (group, topic, partition)
        job = group.removeprefix("wasmline.")
        if job in self.drivers:
            if offset < self._offsets.get(place, -1):
                self.violations.append(f"{place} goes back from {self._offsets[place]} to {offset}")
            self._offsets[place] = offset
            self._commits[job].append((at_ms, partition, offset))

    def check_commits(self) -> dict[str, int]:
        """Compare the commits of micro-batches with the claims; return how many, by job."""
        checked = dict.fromkeys(self.drivers, 0)
        for job, claims in self._claims.items():
            for at_ms, partition, offset in self._commits[job]:
                earlier = [claim for claimed_ms, claim in claims if claimed_ms <= at_ms]
                claim = earlier[-1] if earlier else None
                if claim is None or claim.mode != "microbatch" or partition not in claim.ends:
                    continue
                checked[job] += 1
                if not claim.offsets[partition] <= offset <= claim.ends[partition]:
                    what = f"of batch {claim.batch_id} of {claim.driver}"
                    self.violations.append(
                        f"{job}: {partition}@{offset} was committed at {at_ms}, which is none {what}"
                    )
        return checked

    def check_producers(self, data: Path) -> dict[str, int]:
        """Read commits and reports in a broker's folder of logs; return how many producers of commits there are, by
        job.
        """
        count = {}
        for job in self.drivers:
            commits = _producers(data, COMMITS, f"wasmline.{job}")
            reports = _producers(data, control_topics.JOBS, f"{job}/report/", '"state":"running"')
            count[job] = len(commits)
            for driver, at_ms in self._claimed_ms[job].items():
                for what, producers in (("commits", commits), ("reports", reports)):
                    self.violations += [
                        f"{job}: {each} {what} before and after the claim of {driver}, {at_ms}"
                        for each in producers
                        if each.first_ms < at_ms < each.last_ms
                    ]
        return count


def _fields(key: bytes) -> tuple[int, tuple[str, str, int]]:
    """Return the version of a key of the groups' offsets, and what it names."""
    (version,) = struct.unpack_from(">h", key)
    if version > 1:
        return version, ("", "", 0)
    texts, at = [], 2
    for _ in range(2):
        (length,) = struct.unpack_from(">h", key, at)
        texts.append(key[at + 2 : at + 2 + length].decode())
        at += 2 + length
    (partition,) = struct.unpack_from(">i", key, at)
    return version, (texts[0], texts[1], partition)


def _producers(data: Path, topic: str, *texts: str) -> list[Producer]:
    """Return the producers of the batches of a topic that have all of some texts."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for log in data.glob(f"{topic}-*/*.log"):
        content = log.read_bytes()
        for batch in batches(content):
            body = content[batch.begin : batch.end]
            if batch.producer_id < 0 or batch.is_control or not all(text.encode() in body for text in texts):
                continue
            *_, latest_ms, producer, epoch, _, _ = HEADER.unpack_from(content, batch.begin)
            found[producer, epoch].append(latest_ms)
    return [Producer(*who, min(times), max(times)) for who, times in found.items()]
