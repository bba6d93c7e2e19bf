"""The newest state of the deployments and jobs of a cluster, folded from the records of its control topics."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from operator import attrgetter
from typing import Any, Literal

from wasmline.control import control_topics
from wasmline.control.deployment_history import DeploymentEvent, GenerationHistory, generation_histories
from wasmline.control.deployment_spec import Deployment
from wasmline.control.guest_logs import GuestLogLine
from wasmline.control.job_history import JobEvent
from wasmline.control.job_keys import report_key
from wasmline.control.job_topic import DriverClaim, JobCondition, JobOrder, JobOverview
from wasmline.control.launcher_topic import LAUNCHER_KEY_PREFIX
from wasmline.control.minute_lines import MINUTE_MS, LineSample, MinuteLine
from wasmline.control.redrive_topic import Redrive
from wasmline.control.retrain_status import RetrainStatus
from wasmline.documents import decode
from wasmline.errors import DeploymentNotFound, JobNotFound, UnsupportedSpecVersion
from wasmline.job_specs import JobReport
from wasmline.partition_status import IDLE_AFTER_MS, PartitionStatus
from wasmline.printable import bounded_line

logger = logging.getLogger(__name__)

FOLLOWED_TOPICS = (
    control_topics.DEPLOYMENTS,
    control_topics.HISTORY,
    control_topics.JOBS,
    control_topics.REDRIVES,
    control_topics.STATUS,
    control_topics.LOGS,
)

MAX_GENERATIONS = 100
"""Generations of a transform whose history is kept, the newest."""

MAX_RECORDS = 200
"""Records about a generation, events of a job, and redrives of a topic that are kept, the newest of each."""

MAX_LOG_LINES = 300
"""Log lines of a transform that are kept, the newest."""

MAX_LOG_LETTERS = 1_000

MAX_NAMES = 1_000
"""Names that are kept of what is gone, and of transforms that have logged: any writer chooses them."""

MAX_RUNS = 10_000
"""Runs of DAGs whose changes are found, the last."""

SAMPLE_INTERVAL_MS = 5_000

Kind = Literal["transforms", "jobs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as it stands: its order with the last report of its run, and its partitions with their current lag.

    ``condition`` is that of its run at the last ``tick`` of the state.
    """

    overview: JobOverview
    condition: JobCondition
    partitions: tuple[PartitionStatus, ...]

    @property
    def order(self) -> JobOrder:
        return self.overview.order

    @property
    def transform(self) -> str | None:
        """The transform that it runs, None for a function or a training."""
        stream = self.order.spec.stream
        return stream.transform or None if stream is not None else None


class ClusterState:
    """The newest records of the control topics, within bounds. Not thread-safe.

    A record that this release cannot read takes the place of the one before it, and is told as ``unreadable``. Each
    change of a deployment or a job has a number; ``changed_since`` tells what has changed after one. It has forgotten
    what was gone at ``forgotten`` or before.
    """

    def __init__(self) -> None:
        self.number = 0
        self.forgotten = 0
        self.unreadable: dict[tuple[str, bytes], str] = {}
        """The records that this release cannot read, and why, by topic and key."""
        self.deployments: dict[str, Deployment] = {}
        self.retrains: dict[str, RetrainStatus] = {}
        """The status of the retrain conditions of each model."""
        self._orders: dict[str, JobOrder] = {}
        self._jobs_of: dict[str, set[str]] = {}
        """The jobs whose orders run a transform: one, but for those of earlier releases."""
        self._reports: dict[str, dict[str, JobReport]] = {}
        self._claims: dict[str, DriverClaim] = {}
        self._statuses: dict[str, dict[int, PartitionStatus]] = {}
        self._reported_ms: dict[tuple[str, int], int] = {}
        """When the partitions of jobs were reported, by the clock of ``tick``, until IDLE_AFTER_MS later; in order."""
        self._histories: dict[str, dict[int, dict[bytes, bytes]]] = {}
        self._generations: dict[str, list[GenerationHistory]] = {}
        """Decoded histories, until they change."""
        self._changed_by: dict[str, set[str]] = {}
        """The transforms that a run of a DAG has changed."""
        self._job_events: dict[str, deque[JobEvent]] = {}
        self._redrives: dict[str, dict[str, Redrive]] = {}
        self._logs: dict[str, deque[GuestLogLine]] = {}
        self._dropped_lines: dict[str, int] = {}
        self._lines: dict[str, MinuteLine] = {}
        self._last_minutes: dict[str, int] = {}
        self._ends: dict[str, dict[int, int]] = {}
        self._now_ms = 0
        self._sampled_ms = 0
        self._conditions: dict[str, JobCondition] = {}
        self._changes: dict[Kind, dict[str, int]] = {"transforms": {}, "jobs": {}}

    # -- records -----------------------------------------------------------------------------------------------------

    def apply(self, topic: str, key: bytes | None, value: bytes | None, time_ms: int) -> None:
        """Apply a record. ``time_ms``: its timestamp."""
        if key is None:
            return
        try:
            self._apply(topic, key, value, time_ms)
        except (UnsupportedSpecVersion, UnicodeDecodeError) as error:
            self._apply(topic, key, None, time_ms)
            name = bounded_line(key.decode(errors="replace"))
            logger.warning("record %s of %s is skipped: %s", name, topic, bounded_line(error))
            if len(self.unreadable) < MAX_NAMES:
                self.unreadable[topic, key] = bounded_line(error)
        else:
            self.unreadable.pop((topic, key), None)

    def _apply(self, topic: str, key: bytes, value: bytes | None, time_ms: int) -> None:
        name = key.decode() if value is not None else key.decode(errors="replace")
        match topic:
            case control_topics.DEPLOYMENTS:
                self._apply_deployment(name, value)
            case control_topics.HISTORY:
                self._apply_history(key, name, value)
            case control_topics.JOBS:
                self._apply_job(name, value)
            case control_topics.REDRIVES:
                self._apply_redrive(name, value)
            case control_topics.STATUS:
                self._apply_status(name, value)
            case control_topics.LOGS:
                self._apply_log_line(name, value, time_ms)

    def _apply_deployment(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.deployments.pop(name, None)
        else:
            self.deployments[name] = decode(Deployment, value)
        self._touch("transforms", name)

    def _apply_history(self, key: bytes, text: str, value: bytes | None) -> None:
        name, _, rest = text.partition("/")
        number, _, kind = rest.partition("/")
        if value is None:
            return  # nothing deletes a history
        if not name:
            event = decode(JobEvent, value)
            self._job_events.setdefault(event.job, deque(maxlen=MAX_RECORDS)).append(event)
            self._touch("jobs", event.job)
        elif number.isdecimal() and len(number) < 20:
            self._keep_history(name, int(number), key, value)
            if kind.startswith("event/"):
                _put(self._changed_by, _dag_run(decode(DeploymentEvent, value).cause.run), name, MAX_RUNS)

    def _keep_history(self, name: str, number: int, key: bytes, value: bytes) -> None:
        generations = self._histories.setdefault(name, {})
        records = generations.setdefault(number, {})
        records[key] = value
        if len(records) > MAX_RECORDS:
            del records[next(iter(records))]
        if len(generations) > MAX_GENERATIONS:
            del generations[min(generations)]
        self._generations.pop(name, None)
        self._touch("transforms", name)

    def _apply_job(self, key: str, value: bytes | None) -> None:
        job, _, rest = key.partition("/")
        if not job or key.startswith(LAUNCHER_KEY_PREFIX):
            return
        kind, _, identity = rest.partition("/")
        match kind:
            case "":
                self._apply_order(job, value)
            case "report":
                reports = self._reports.setdefault(job, {})
                reports.pop(identity, None)
                if value is not None:
                    reports[identity] = decode(JobReport, value)
                self._touch_job(job)
            case "batch" if not identity:
                self._claims.pop(job, None)
                if value is not None:
                    self._claims[job] = decode(DriverClaim, value)
            case "retrain" if not identity:
                self.retrains.pop(job, None)
                if value is not None:
                    self.retrains[job] = decode(RetrainStatus, value)

    def _apply_order(self, job: str, value: bytes | None) -> None:
        """Take an order; without one, what is known of the job is of no use."""
        order = decode(JobOrder, value) if value is not None else None
        self._touch_job(job)
        self._forget_transform(job)
        if order is None:
            tables: tuple[dict[str, Any], ...] = (self._orders, self._reports, self._claims, self._statuses)
            for table in (*tables, self._conditions):
                table.pop(job, None)
            return
        self._orders[job] = order
        if order.spec.stream is not None and order.spec.stream.transform:
            self._jobs_of.setdefault(order.spec.stream.transform, set()).add(job)
        self._touch_job(job)

    def _forget_transform(self, job: str) -> None:
        before = self._orders.get(job)
        if before is not None and before.spec.stream is not None:
            self._jobs_of.get(before.spec.stream.transform, set()).discard(job)

    def _apply_redrive(self, key: str, value: bytes | None) -> None:
        topic, _, kind, identity = (*key.split("/", 3), "", "", "")[:4]
        if kind != "redrive":
            return  # the offsets of one
        redrives = self._redrives.setdefault(topic, {})
        redrives.pop(identity, None)
        if value is not None:
            redrives[identity] = decode(Redrive, value)
            if len(redrives) > MAX_RECORDS:
                del redrives[next(iter(redrives))]

    def _apply_status(self, key: str, value: bytes | None) -> None:
        job, _, number = key.rpartition("/")
        if not (job and number.isdecimal() and len(number) < 10):
            return
        statuses = self._statuses.setdefault(job, {})
        if value is None:
            statuses.pop(int(number), None)
        else:
            status = decode(PartitionStatus, value)
            if status.transform:
                self._record_minute(status.transform, min(status.updated_ms, self._now_ms))
            statuses[int(number)] = status
            self._reported_ms.pop((job, int(number)), None)
            self._reported_ms[job, int(number)] = self._now_ms or status.updated_ms
        self._touch_job(job)

    def _apply_log_line(self, transform: str, value: bytes | None, time_ms: int) -> None:
        if value is None:
            return
        lines = self._logs.setdefault(transform, deque(maxlen=MAX_LOG_LINES))
        if len(self._logs) > MAX_NAMES:
            self._logs.pop(next(iter(self._logs)))
        if len(lines) == MAX_LOG_LINES:
            self._dropped_lines[transform] = self._dropped_lines.get(transform, 0) + 1
        lines.append(GuestLogLine(time_ms, value.decode(errors="replace")[:MAX_LOG_LETTERS]))

    def _touch(self, kind: Kind, name: str) -> None:
        self.number += 1
        changes = self._changes[kind]
        changes.pop(name, None)  # the names are in the order of their changes
        changes[name] = self.number
        known = self.deployments if kind == "transforms" else self._orders
        if len(changes) > len(known) + MAX_NAMES:
            gone = next(each for each in changes if each not in known)
            self.forgotten = max(self.forgotten, changes.pop(gone))

    def _touch_job(self, job: str) -> None:
        """Note a change of a job, and of the transform that it runs."""
        self._touch("jobs", job)
        order = self._orders.get(job)
        if order is not None and order.spec.stream is not None and order.spec.stream.transform:
            self._touch("transforms", order.spec.stream.transform)

    # -- time and the ends of topics ---------------------------------------------------------------------------------

    @property
    def input_topics(self) -> set[str]:
        """The topics that deployments and functions read."""
        streams = (each.spec.stream for each in self._orders.values())
        functions = {each.function.topic for each in streams if each is not None and each.function is not None}
        return functions | {each.spec.input_topic for each in self.deployments.values()}

    def set_ends(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Take the end offsets of topics, by partition; a topic that is absent does not exist."""
        changed = {topic for topic in {*ends, *self._ends} if ends.get(topic) != self._ends.get(topic)}
        self._ends = {topic: dict(found) for topic, found in ends.items()}
        for name, deployment in self.deployments.items():
            if deployment.spec.input_topic in changed:
                self._touch("transforms", name)
        for job, statuses in self._statuses.items():
            if any(each.topic in changed for each in statuses.values()):
                self._touch("jobs", job)

    def tick(self, now_ms: int) -> None:
        """Take the time: drivers fall silent by it, partitions idle, and minutes end."""
        self._now_ms = now_ms
        for job in self._orders:
            condition = self._overview(job).condition(now_ms)
            if self._conditions.get(job) != condition:
                self._conditions[job] = condition
                self._touch_job(job)
        silent = list(takewhile(lambda each: now_ms - each[1] >= IDLE_AFTER_MS, self._reported_ms.items()))
        for (job, number), _ in silent:
            del self._reported_ms[job, number]
            if number in self._statuses.get(job, ()):
                self._touch_job(job)
        if now_ms - self._sampled_ms >= SAMPLE_INTERVAL_MS:
            self._sampled_ms = now_ms
            for name in self.deployments:
                line = self._lines.setdefault(name, MinuteLine())
                line.record(now_ms, LineSample.of(self.partitions_of(name)))

    def _record_minute(self, transform: str, time_ms: int) -> None:
        """Close the minute before ``time_ms``, as the records of the topic tell it; see ``tick`` for the present."""
        minute = time_ms // MINUTE_MS
        last = self._last_minutes.setdefault(transform, minute)
        if minute > last:
            line = self._lines.setdefault(transform, MinuteLine())
            line.record(last * MINUTE_MS, LineSample.of(self.partitions_of(transform)))
            self._last_minutes[transform] = minute

    # -- views -------------------------------------------------------------------------------------------------------

    def changed_since(self, number: int, kind: Kind) -> dict[str, int]:
        """Return the names of what has changed after a number, and the number of the change, also if it is gone."""
        found = takewhile(lambda change: change[1] > number, reversed(self._changes[kind].items()))
        return dict(found)

    def has_job(self, job: str) -> bool:
        """Return whether a job has an order."""
        return job in self._orders

    def job(self, job: str) -> JobView | None:
        """Return a job, None without an order that this release can read."""
        if job not in self._orders:
            return None
        overview = self._overview(job)
        condition = overview.condition(self._now_ms)
        partitions = tuple(
            each.at(
                self._ends.get(each.topic, {}).get(each.partition),
                silent_ms=self._now_ms - self._reported_ms.get((job, each.partition), 0),
                runs=condition == "running",
            )
            for each in self._last_topic(job)
        )
        return JobView(overview=overview, condition=condition, partitions=partitions)

    def require_deployment(self, name: str) -> Deployment:
        """Return the current deployment of a name. Raises DeploymentNotFound."""
        if name not in self.deployments:
            raise DeploymentNotFound(f"nothing is deployed as {name!r}", name=name)
        return self.deployments[name]

    def require_job(self, job: str) -> JobView:
        """Return a job. Raises JobNotFound."""
        view = self.job(job)
        if view is None:
            raise JobNotFound(f"there is no job {job!r} on this cluster", job=job)
        return view

    def orders(self) -> list[JobOrder]:
        """Return the current order of every job."""
        return list(self._orders.values())

    def jobs(self) -> list[JobView]:
        """Return every job, by name."""
        return [view for job in sorted(self._orders) if (view := self.job(job)) is not None]

    def job_of(self, transform: str) -> JobView | None:
        """Return the job that runs a transform: of several, as earlier releases had, the one that is wanted."""
        jobs = self._jobs_of.get(transform)
        return self.job(min(jobs, key=lambda job: (self._orders[job].wanted != "running", job))) if jobs else None

    def partitions_of(self, transform: str) -> list[PartitionStatus]:
        """Return the partitions of the job that runs a transform, by number."""
        view = self.job_of(transform)
        return list(view.partitions) if view is not None else []

    def partition_count(self, topic: str) -> int | None:
        """Return the number of a topic's partitions, None if it is not known."""
        return len(self._ends[topic]) if topic in self._ends else None

    def generations(self, name: str) -> list[GenerationHistory]:
        """Return the last generations of a transform, oldest first."""
        if name not in self._generations:
            kept = self._histories.get(name, {})
            view = {key: value for each in kept.values() for key, value in each.items()}
            self._generations[name] = generation_histories(name, view)
        return self._generations[name]

    def events_of_run(self, run: str) -> list[tuple[str, DeploymentEvent]]:
        """Return the changes that a run of a DAG, ``DAG/RUN``, has made, each with its transform, oldest first."""
        found = [
            (name, event)
            for name in self._changed_by.get(run, ())
            for each in self.generations(name)
            for event in each.events
            if _dag_run(event.cause.run) == run
        ]
        return sorted(found, key=lambda each: each[1].deployment.updated_ms)

    def job_events(self, job: str) -> list[JobEvent]:
        """Return the last events of a job, oldest first."""
        return list(self._job_events.get(job, ()))

    def claim(self, job: str) -> DriverClaim | None:
        """Return the newest claim of a driver of a job."""
        return self._claims.get(job)

    def redrives(self, topic: str | None) -> list[Redrive]:
        """Return the last redrives of a dead-letter topic, in the order of their last records; None: of all topics."""
        topics: Iterable[str] = self._redrives if topic is None else [topic]
        return [each for name in topics for each in self._redrives.get(name, {}).values()]

    def log_lines(self, transform: str) -> tuple[list[GuestLogLine], int]:
        """Return the last log lines of a transform, oldest first, and how many before them were dropped."""
        return list(self._logs.get(transform, ())), self._dropped_lines.get(transform, 0)

    def line(self, transform: str, now_ms: int) -> list[LineSample | None]:
        """Return the figures of a transform in the last hour: see MinuteLine."""
        return self._lines.get(transform, MinuteLine()).last_hour(now_ms)

    def _overview(self, job: str) -> JobOverview:
        order = self._orders[job]
        run = order.spec.run
        problem = self.unreadable.get((control_topics.JOBS, report_key(job, run)), "")
        return JobOverview(
            order=order,
            report=self._reports.get(job, {}).get(run),
            problem=f"its report cannot be read: {problem}" if problem else "",
        )

    def _last_topic(self, job: str) -> list[PartitionStatus]:
        """Return the statuses of the order's transform and of the topic that it reads, by partition."""
        stream = self._orders[job].spec.stream
        if stream is None:
            return []
        work = stream.function.function if stream.function is not None else stream.transform
        known = [each for each in self._statuses.get(job, {}).values() if each.transform == work]
        topic = max(known, key=attrgetter("updated_ms")).topic if known else ""
        if stream.function is not None:
            topic = stream.function.topic
        elif work in self.deployments:
            topic = self.deployments[work].spec.input_topic
        return sorted((each for each in known if each.topic == topic), key=attrgetter("partition"))


def _dag_run(run: str) -> str:
    """Return the run of a DAG in the name of a run or of one of its tasks."""
    return "/".join(run.split("/")[:2])


def _put(known: dict[str, set[str]], key: str, name: str, limit: int) -> None:
    """Add a name to those of a key, of the last ``limit`` keys."""
    known.setdefault(key, set()).add(name)
    if len(known) > limit:
        del known[next(iter(known))]
