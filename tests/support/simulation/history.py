"""A history of one job: its runs, what befalls them, and what has to hold of its outputs whatever does."""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar
from zlib import crc32

from support.simulation.clients import EVERYTHING
from support.simulation.virtual import OUTSIDE, Actor, Process
from support.simulation.world import SLOW, World
from wasmline import transactional_ids
from wasmline.consumer import Output
from wasmline.consumer.backends.memory import MemoryTransactionalProducer
from wasmline.consumer.backends.memory.cluster import OFFSETS
from wasmline.consumer.backends.memory.group import Member, PendingOffsets
from wasmline.consumer.backends.memory.partition_log import Transaction, TransactionOutcome
from wasmline.consumer.backends.memory.transactional_producer import expire_ids, time_out
from wasmline.control import DeploymentSpec, DeploymentTopic, DriverClaim, JobTopic, deploy
from wasmline.control.control_topics import JOBS
from wasmline.control.job_topic import newest_claim
from wasmline.documents import decode
from wasmline.errors import BrokerUnavailable
from wasmline.job_offsets.resume_plan import claim_is_authoritative
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.kafka.config import VARIABLE
from wasmline.leases.timings import DEFAULT_TIMINGS
from wasmline.pipeline.transform_handler import TransformHandler
from wasmline.registry import digest_of
from wasmline.spark import main
from wasmline.topic_partitions import CommittedOffset, TopicPartition
from wasmline.transactional_ids import VIRTUAL_SHARDS

CONFIG = KafkaConfig({"bootstrap.servers": "memory"})
JOB = "j"
GROUP = f"wasmline.{JOB}"
INPUT, OUTPUT = "in", "out"
WASM = b"module"
KEYS = (b"a", b"b", b"c")
SLOW_KEYS = (SLOW, *KEYS)
MODES = [(mode, delivery) for mode in ("microbatch", "parallel") for delivery in ("exactly_once", "at_least_once")]

PLACES = {
    "everywhere": (TopicPartition(OUTPUT, 0), OFFSETS),
    "outputs": (TopicPartition(OUTPUT, 0),),
    "offsets": (OFFSETS,),
}
"""Where the markers of a transaction are lost."""

DAY_S = 24 * 3_600.0
RETENTION_S = 7 * DAY_S
"""How long a broker keeps the offsets of a group without members, and a transactional id without transactions."""

MOST_PARTITIONS = 4

OTHER_SHARDS = 2
"""The virtual shards of another release."""

TRANSACTION_S = 900.0
"""The longest time-out of a transaction."""

HEARD_S, HEARD_STEPS = 5.0, 300
"""The time and the steps after which a task has heard of a claim."""

LOOK = 20
"""Steps between two looks at what became of the runs."""

RENEWAL_MARGIN_S = 1.0
"""Seconds for which a lease may not have been renewed when its run is left to stand still."""

MOST_STEPS_TO = 600
"""Steps in which a run may come to a moment."""

MOST_STEPS = 20_000
"""Steps in which a run that is left alone has to end."""


class Violation(AssertionError):
    """Something that is promised did not hold."""


class Place(NamedTuple):
    """Where an input record is; ``topic`` counts the topics that had the input's name, from 0 on."""

    partition: int
    offset: int
    topic: int


@dataclass
class Run:
    """One run of the job."""

    name: str
    stream: StreamSpec
    process: Process
    actor: Actor
    ends: Mapping[int, int]
    """Where the input ended when the run began."""
    began_s: float
    began: int
    number: int
    topic: int
    """Which of the input's topics it reads."""
    done: Mapping[int, int]
    """Below which offsets all was committed when it was ordered."""
    is_disturbed: bool = False
    """Something befell it that may have it do records again that it has done, at least once."""
    is_torn: bool = False
    """It left records done and not committed, so that its successor may do them again, at least once."""
    is_outlived: bool = False
    """A run at least once took the job from it, and no such run asks what this one still commits."""
    lacks_commits: bool = False
    """Commits of it were refused, because somebody had subscribed with its group: it may end without them."""
    has_begun: bool = False
    """It has said that it runs."""
    is_refused: bool = False
    """The run before was one of a release with other transactional ids."""
    is_over: bool = False
    ended: int = 0
    seen_s: float = 0.0
    """When it took its last step."""
    claims: int = 0
    """How often it has claimed a batch or a lease."""
    replaced_s: float | None = None
    """When another run claimed the job, and the steps that its processes had taken by then."""
    steps: Mapping[Process, int] = field(default_factory=dict)
    report: JobReport | None = None

    @property
    def is_exact(self) -> bool:
        return self.stream.delivery == "exactly_once"

    @property
    def name_of_end(self) -> str:
        if self.report is None:
            return "killed" if self.is_over else "running"
        return str(self.report.error or self.report.state)


@dataclass
class Told:
    """Records of which a loss, or a repetition, was told or ordered."""

    lost: set[Place] = field(default_factory=set)
    doubled: set[Place] = field(default_factory=set)


@dataclass(frozen=True)
class Move:
    """Somebody committed another offset of a partition, which a run has to notice.

    ``is_between``: no run was under way, so that the next one has to; otherwise it is the one that was.
    """

    partition: int
    before: int
    after: int
    is_between: bool
    claims: Mapping[str, int] = field(default_factory=dict)
    """How often each run had claimed by then that has to notice it."""


COUNTS: Counter[str] = Counter()
"""What all histories of this process did, and how their runs ended."""

P = ParamSpec("P")
T = TypeVar("T")


def _counted(do: Callable[P, T]) -> Callable[P, T]:
    """Count how often something is done in any history."""

    @wraps(do)
    def counted(*given: P.args, **named: P.kwargs) -> T:
        COUNTS[do.__name__] += 1
        return do(*given, **named)

    return counted


class History:
    """Does things to a job, one after the other, and checks after each what has to hold."""

    def __init__(
        self,
        *,
        partitions: int = 2,
        starting: str = "earliest",
        takes_columns: bool = False,
        reads_directly: bool = False,
    ) -> None:
        """``takes_columns``: leases read records as columns, so that a call has all that is there, of any keys.

        ``reads_directly``: the tasks of micro-batches read and write by themselves, and not by Spark's source and sink.
        """
        os.environ[VARIABLE] = CONFIG.to_json()
        TransformHandler.takes_columns = takes_columns
        self.world = World()
        self.world.reads_directly = reads_directly
        self.runtime, self.cluster = self.world.runtime, self.world.cluster
        self.runtime.on_time = lambda: time_out(self.cluster)
        self.starting = starting
        self.cluster.create(INPUT, partitions)
        self.cluster.create(OUTPUT)
        self._deployed = 1
        self._deploy(INPUT)
        self._jobs = JobTopic(CONFIG)
        self.runs: list[Run] = []
        self._seen_jobs = 0
        """The next offset of the job topic to look at."""
        self.zombies: list[Process] = []
        self.visitor: Member | None = None
        self.due: set[Place] = set()
        self.told = Told()
        self._moment = 0
        """Counts what is done, because that takes no time."""
        self._times: dict[str, int] = {}
        """The moment of what a run may fail of, when it happened last."""
        self._moves: list[Move] = []
        """What a run has to notice, or to set right."""
        self._heard_claim: DriverClaim | None = None
        """The newest claim that was heard of: by it the author of the next one knows what was done."""
        self._kept_since = 0.0
        """When the last run began that ended as it should: progress is no older than that."""
        self._goes_on_after_loss = False
        """The next run is ordered to go on where records were removed before they were read."""
        self.goes_on_after_move = False
        """The next run is ordered to go on where the group is."""
        self._topics = 0
        """The input's topics before this one."""
        self._has_begun = False
        """A run has said that it runs."""
        self._violations: list[str] = []
        """What did not hold in the middle of a step, where our code would take the exception for its own."""
        self._written: dict[Place, list[str]] = defaultdict(list)
        """The runs that wrote each record's output, in the order of the topic."""
        self.world.environment.on_commit = self._see_commit
        self._install(VIRTUAL_SHARDS)

    @property
    def trace(self) -> int:
        """A digest of all steps and of all that was written: equal for equal histories."""
        topics = sorted({partition.topic for partition in self.cluster.partitions})
        written = [self.cluster.records(topic, committed=False) for topic in topics]
        return crc32(repr((self.runtime.trace, written)).encode())

    # -- records ------------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> range:
        return range(len(self.cluster.topic(INPUT).logs))

    def produce_everywhere(self, count: int, *, slow: int | None = 0) -> None:
        """Write records to each partition; those of one take their time."""
        for partition in self.partitions:
            self.produce(partition, count, is_slow=partition == slow)

    @_counted
    def produce(self, partition: int, count: int, *, fate: str = "plain", is_slow: bool = False) -> None:
        """Write records, plainly or in a transaction that is committed or aborted; some may take their time."""
        keys = SLOW_KEYS if is_slow else KEYS
        partition %= len(self.partitions)
        writer = None if fate == "plain" else MemoryTransactionalProducer(self.cluster, "producer")
        for number in range(count):
            key = keys[number % len(keys)]
            output = Output(INPUT, b"%d" % self._topics, key, partition=partition)
            _, offset = self.cluster.write(output) if writer is None else writer.write(output)
            if fate != "aborted" and (self._has_begun or self.starting == "earliest"):
                self.due.add(Place(partition, offset, self._topics))
        if writer is not None:
            writer.commit() if fate == "committed" else writer.abort()

    @_counted
    def apply_retention(self, partition: int, share: float) -> None:
        """Remove the oldest records of a partition, as retention does; what no run has seen is nobody's loss."""
        number = partition % len(self.partitions)
        log = self.cluster.log(TopicPartition(INPUT, number))
        self.cluster.delete_records(TopicPartition(INPUT, number), log.start + int((log.end - log.start) * share))
        if not any(run.has_begun and run.topic == self._topics and number in run.ends for run in self.runs):
            self.due -= {each for each in self.due if each.partition == number and each.offset < log.start}
        self._note("retention")

    def truncate(self, partition: int, end: int) -> None:
        """Let a leader take over that lacks what is from an offset on; other records get these offsets later."""
        self._let_double(partition, end)
        self.cluster.truncate(TopicPartition(INPUT, partition), end)
        self.due -= {each for each in self.due if each.partition == partition and each.offset >= end}
        self._note("retention")

    @_counted
    def add_partition(self) -> None:
        if len(self.partitions) < MOST_PARTITIONS:
            self.cluster.create_partitions(INPUT, len(self.partitions) + 1)
            self._note("partition")

    @_counted
    def recreate_topic(self, partitions: int = 0) -> None:
        """Delete the input and create another of its name; what nobody has done of it is nobody's to do any more.

        ``partitions``: of the new one; 0: as many as the old one had.
        """
        partitions = partitions or len(self.partitions)
        self.cluster.delete(INPUT)
        self.cluster.create(INPUT, partitions)
        self._topics += 1
        self.due.clear()
        self._moves.clear()
        self._note("recreate")

    # -- runs ---------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Run]:
        return [run for run in self.runs if not run.is_over]

    @property
    def is_under_way(self) -> bool:
        """Whether the job has made progress of every partition its own."""
        return any(run.name_of_end == "succeeded" for run in self.runs)

    @property
    def last_mode(self) -> tuple[str, str]:
        """The mode and the delivery of the last run."""
        if not self.runs:
            return "microbatch", "exactly_once"
        stream = self.runs[-1].stream
        return stream.mode, stream.delivery

    @_counted
    def start(self, mode: str, delivery: str, *, is_endless: bool = False) -> Run:
        """Order a run and start its driver; one that is under way hears of that, and ends when it looks."""
        number = len(self.runs)
        name = f"r{number}"
        stream = StreamSpec(
            transform="t",
            mode=mode,  # type: ignore[arg-type]
            delivery=delivery,  # type: ignore[arg-type]
            starting_offsets=self.starting,  # type: ignore[arg-type]
            max_offsets_per_trigger=5,
            trigger_interval="1 second" if is_endless else None,
            max_concurrency=2 if mode == "parallel" else None,
            commit_interval_ms=100 if mode == "parallel" else None,
            fail_on_data_loss=not self._goes_on_after_loss,
            fail_on_moved_progress=not self.goes_on_after_move,
        )
        if self.goes_on_after_move:  # "it goes on where the group is, whatever was done": guarantees.md
            self._excuse(self._moves)
        self._goes_on_after_loss = self.goes_on_after_move = False
        spec = self._jobs.submit(JobSpec(job=JOB, run=name, storage="store", stream=stream)).spec
        process = Process(name, f"{name}/driver")

        def drive() -> JobReport:
            jobs = JobTopic(CONFIG)
            try:
                return main._reported(jobs, CONFIG, spec)[0]
            finally:
                jobs.close()

        ends = {each: self.cluster.log(TopicPartition(INPUT, each)).end for each in self.partitions}
        run = Run(
            name,
            stream,
            process,
            self.runtime.spawn(drive, process),
            ends,
            began_s=self.runtime.seconds,
            began=self._tick(),
            number=number,
            topic=self._topics,
            done=self._done(),
            seen_s=self.runtime.seconds,
        )
        run.is_refused = self._claimed_shards() not in (None, self._shards)
        self.runs.append(run)
        return run

    def advance(self, run: Run, steps: int) -> None:
        """Let a run's processes take so many steps."""
        self._advance([run], steps)

    def _advance(self, runs: Sequence[Run], steps: int) -> None:
        """Let runs take so many steps; one that took none for a while has stood still."""
        now = self.runtime.seconds
        for run in runs:
            if now - run.seen_s > DEFAULT_TIMINGS.renewal_timeout_s - RENEWAL_MARGIN_S:
                self._tear(run)
                for process in [each for each in self._processes(run) if not each.is_frozen]:
                    process.freeze(run.seen_s)
                    process.thaw(self.runtime.seconds)
        self.runtime.advance([run.name for run in runs], steps)
        for run in runs:
            run.seen_s = self.runtime.seconds
        self._notice()

    @_counted
    def advance_all(self, steps: int) -> None:
        """Let all runs go on beside each other for so many steps, or until there is none."""
        while steps > 0 and self.alive:
            self._advance(self.alive, min(steps, LOOK))
            steps -= LOOK

    @_counted
    def advance_to(self, run: Run, what: str, times: int = 1) -> None:
        """Let a run go on until it is about to do something of MOMENTS, or until its end; it may never do it."""
        reached = self.world.environment.reached
        until, steps = reached[run.name, what] + times, 0
        while not run.is_over and reached[run.name, what] < until and steps < MOST_STEPS_TO:
            steps += 1
            self.advance(run, 1)

    def finish(self, run: Run) -> None:
        """Let a run go on until it ends."""
        steps = 0
        if run.process.is_frozen:
            run.process.thaw(self.runtime.seconds)
        while not run.is_over:
            steps += 200
            if steps > MOST_STEPS:
                raise Violation(f"{run.name} does not end: {self.runtime.seconds:.0f} s on the clock")
            self.advance(run, 200)

    def advance_into_task(self, run: Run, steps: int) -> None:
        """Let a run go on until so many steps after a task of its next batch began, or until its end."""
        taken = 0
        while not run.is_over and not self.world.spark.executors.get(run.name) and taken < MOST_STEPS:
            taken += 1
            self.advance(run, 1)
        self.advance(run, steps)

    @_counted
    def crash(self, run: Run) -> None:
        """Kill a run's driver and executors; its supervisor says so."""
        run.is_over, run.report, run.ended = True, None, self._tick()
        self._tear(run)
        self._see_end(run)
        self.runtime.kill(self._processes(run))
        report = JobReport.now(JOB, run.name, JobState.FAILED, "killed", error="JobFailed")
        self._jobs.write_report(report)

    @_counted
    def lose_worker(self, run: Run) -> None:
        """Kill a process that works on a task; Spark tries the task again."""
        if workers := self.world.spark.executors.get(run.name):
            self._tear(run)
            self.runtime.kill([workers[0]])

    @_counted
    def freeze_worker(self, run: Run) -> None:
        """Let a process that works on a task stand still; Spark takes it for lost, and tries the task again."""
        if workers := self.world.spark.executors.get(run.name):
            self._tear(run)
            workers[0].freeze(self.runtime.seconds)
            workers[0].run = f"zombie-{len(self.zombies)}"
            self.zombies.append(workers[0])

    @_counted
    def wake(self, zombie: Process, steps: int) -> None:
        """Let a process go on that stood still; nobody waits for it any more."""
        zombie.thaw(self.runtime.seconds)
        self.runtime.advance([zombie.run], steps)
        zombie.freeze(self.runtime.seconds)

    @_counted
    def freeze_or_thaw_driver(self, run: Run) -> None:
        """Let a run's driver stand still, whose tasks go on; or go on, if it stands still."""
        if run.process.is_frozen:
            run.process.thaw(self.runtime.seconds)
        else:
            self._tear(run)
            run.process.freeze(self.runtime.seconds)

    @_counted
    def stop(self, run: Run) -> None:
        self._jobs.stop(JOB, run.name)

    def _processes(self, run: Run) -> set[Process]:
        return {each.process for each in self.runtime.actors if each.process.run == run.name} | {run.process}

    def _tear(self, run: Run) -> None:
        """Note that a run may have done what it has not committed."""
        run.is_disturbed = run.is_torn = True
        self._judge_moves(self._claim())

    # -- what else happens --------------------------------------------------------------------------------------------

    @_counted
    def visit(self) -> None:
        """Somebody subscribes with the job's group."""
        if self.visitor is None:
            self.visitor = Member([INPUT])
            self.cluster.group(GROUP).join(self.visitor, self.cluster.partitions)
            self._note("visit")

    @_counted
    def leave(self) -> None:
        """The visitor leaves."""
        if self.visitor is not None:
            self.cluster.group(GROUP).leave(self.visitor, self.cluster.partitions)
            self.visitor = None
            self._note("visit")

    @_counted
    def move(self, partition: int, by: int) -> None:
        """A tool, or the visitor, commits another offset of a partition; of one that was added, while no run is there.

        A run that is there may have made it its own, and not claimed it yet.
        """
        place = TopicPartition(INPUT, partition % len(self.partitions))
        claim = self._claim()
        if self.alive and claim is not None and place.partition not in claim.offsets:
            return
        left = self.cluster.group(GROUP).committed.get(place)
        log = self.cluster.log(place)
        found = left.offset if left else log.start
        after = max(0, min(log.end, found + by))
        earlier = next((each for each in self._moves if (each.partition, each.after) == (place.partition, found)), None)
        before = earlier.before if earlier else left.offset if left else 0
        self.cluster.commit(GROUP, {place: CommittedOffset(after)}, self.visitor)
        leases = any(run.stream.mode == "parallel" for run in self.alive)
        is_taken = leases and after >= found  # "more is taken for another owner's work": guarantees.md; the map is gone
        watching = {} if is_taken else {run.name: run.claims for run in self.alive if self._is_watching(run)}
        move = Move(place.partition, before, after, is_between=not self.alive, claims=watching)
        self._moves = [each for each in self._moves if each.partition != place.partition]
        if watching or (move.is_between and self._is_noticed(move, claim)):
            self._moves.append(move)
        else:
            self._excuse([move])
        if self.zombies or len(self.alive) > 1:  # a task of a replaced run may be tried again: guarantees.md
            self._let_double(place.partition, min(after, found))
        self._note("lose")

    @_counted
    def pass_days(self, days: float) -> None:
        """Let time pass; the cluster forgets what is old."""
        self.runtime.pass_time(days * DAY_S)
        self._note("sleep")
        self.cluster.expire_offsets(RETENTION_S)
        expire_ids(self.cluster, RETENTION_S)
        if self.runtime.seconds - self._kept_since >= RETENTION_S:
            self._note("lose")

    @_counted
    def forget_group(self) -> None:
        """The group's offsets are deleted."""
        group = self.cluster.group(GROUP)
        group.forget(list(group.committed))
        self._note("lose")

    @_counted
    def lose_checkpoints(self) -> None:
        for run in self.alive:
            run.is_torn = True
        self.world.spark.storage.clear()

    @_counted
    def lose_brokers(self, run: Run, seconds: float, steps: int) -> None:
        """No broker answers a run, for so many seconds."""
        environment = self.world.environment
        environment.away_until = self.runtime.seconds + seconds
        self._note("outage")
        self.advance(run, steps)
        environment.away_until = min(environment.away_until, self.runtime.seconds)
        self._note("outage")

    @_counted
    def lose_answer(self, run: Run, steps: int, *, is_carried_out: bool) -> None:
        """The next commit of a run gets no answer."""
        lost = self.world.environment.lost_commits
        lost.append(is_carried_out)
        self._note("outage")
        self.advance(run, steps)
        lost.clear()

    @_counted
    def lose_markers(self, run: Run, where: str, steps: int) -> None:
        """A broker is restarted while a run ends a transaction, and loses its markers in some of PLACES."""
        with self.cluster.losing_markers(f"wasmline.stream.{JOB}/", PLACES[where]):
            epoch = self.cluster.leader_epoch
            self.advance(run, steps)
            COUNTS[f"markers lost: {where}"] += self.cluster.leader_epoch - epoch

    def _hanging(self) -> dict[TopicPartition, list[tuple[int, Transaction | PendingOffsets]]]:
        """Return what is open on outputs and offsets, though its coordinator has no transaction under way."""
        running = {
            each.producer_id: each.partitions
            for each in self.cluster.writers.values()
            if isinstance(each, MemoryTransactionalProducer)
        }
        return {
            place: [each for each in self.cluster.open_transactions(place) if place not in running.get(each[0], ())]
            for place in PLACES["everywhere"]
        }

    def _hanging_outputs(self) -> set[Place]:
        """Return the records whose outputs are hidden by lost markers."""
        hanging = {transaction for _, transaction in self._hanging()[TopicPartition(OUTPUT, 0)]}
        log = self.cluster.log(TopicPartition(OUTPUT, 0))
        entries = log.read(log.start, EVERYTHING, committed=False)[0] if hanging else []
        return {_place_of(each.output) for each in entries if each.output and each.transaction in hanging}

    def _abort_hanging(self) -> None:
        """Abort what hangs, as HangingTransaction says; know what is lost or doubled where a part was committed."""
        outputs, hanging = self._hanging_outputs(), self._hanging()
        for place, its in hanging.items():
            for producer_id, _ in its:
                self.cluster.abort_hanging(place, producer_id)
        committed = self.cluster.group(GROUP).committed
        for each in outputs:
            left = committed.get(TopicPartition(INPUT, each.partition))
            if left is not None and (left.metadata or each.offset < left.offset):
                self.told.lost.add(each)
        if hanging[OFFSETS]:
            for each in self._written:
                left = committed.get(TopicPartition(INPUT, each.partition))
                if left is None or each.offset >= left.offset:
                    self.told.doubled.add(each)
        self._note("lose")

    @_counted
    def change_release(self) -> None:
        """Install a release with another number of virtual shards, while nothing runs."""
        if not self.alive and not self.zombies:
            self._install(OTHER_SHARDS if self._shards == VIRTUAL_SHARDS else VIRTUAL_SHARDS)

    def _install(self, shards: int) -> None:
        self._shards = shards
        if shards == transactional_ids.VIRTUAL_SHARDS:
            return
        for module in _modules_of_shards():
            module.VIRTUAL_SHARDS = shards

    @_counted
    def redeploy(self, topic: str = INPUT) -> None:
        """Deploy another version, which may read another topic."""
        self._deployed += 1
        self._deploy(topic)

    def _deploy(self, topic: str) -> None:
        version = str(self._deployed)
        digest = digest_of(WASM)
        spec = DeploymentSpec(name="t", version=version, digest=digest, input_topic=topic, output_topics=(OUTPUT,))
        deploy(CONFIG, spec, WASM)

    @_counted
    def pause(self) -> None:
        log = DeploymentTopic(CONFIG)
        log.pause("t", "an operator")
        log.close()
        self._note("pause")

    @_counted
    def resume(self) -> None:
        log = DeploymentTopic(CONFIG)
        log.resume("t")
        log.close()

    @_counted
    def repair(self) -> None:
        """Do what the last run's error says.

        OffsetOutOfRange: the next run goes on after the loss. HangingTransaction: abort what hangs. ProgressLost: once
        no run is under way, set the group's offsets to where the outputs end, and let the next run take them.
        """
        end = self.runs[-1].name_of_end if self.runs else ""
        if end == "OffsetOutOfRange":
            self._goes_on_after_loss = True
        if end == "HangingTransaction":
            self._abort_hanging()
        if end != "ProgressLost" or self.alive:
            return
        offsets = {}
        for number in self.partitions:
            undone = [each.offset for each in self.missing() if each.partition == number]
            log = self.cluster.log(TopicPartition(INPUT, number))
            at = max(log.start, min(undone, default=log.stable))
            self.told.lost |= {each for each in self.missing() if each.partition == number and each.offset < at}
            offsets[TopicPartition(INPUT, number)] = CommittedOffset(at)
            self._let_double(number, at)
        self.cluster.group(GROUP).record(offsets)
        self._moves.clear()
        self._times.pop("lose", None)
        self.goes_on_after_move = True
        self._kept_since = self.runtime.seconds

    def conclude(self) -> None:
        """Wait until what is still open is aborted, and check that nothing is hidden from a reader any more.

        guarantees.md: *Not recognised:* outputs that hang after "a run at least once had claimed the job", and "outputs
        that still hang when their transactional id expires".
        """
        self.runtime.pass_time(TRANSACTION_S)
        place = TopicPartition(OUTPUT, 0)
        log, hanging = self.cluster.log(place), {producer_id for producer_id, _ in self._hanging()[place]}
        is_expired = hanging.isdisjoint(self.cluster.producer_ids.values())
        is_excused = bool(hanging) and (is_expired or any(run.is_outlived for run in self.runs))
        if log.stable < log.end and not is_excused:
            raise Violation(f"nobody reads {OUTPUT} past {log.stable}, and it ends at {log.end}")

    def heal(self) -> None:
        """End everything that stands in a run's way."""
        self.leave()
        self.resume()
        for run in self.alive:
            self.crash(run)
        self._install(self._claimed_shards() or VIRTUAL_SHARDS)

    def _claimed_shards(self) -> int | None:
        claim = self._last_claim()
        return None if claim is None else claim.virtual_shards

    # -- what is known, and excuses something -------------------------------------------------------------------------

    def _note(self, what: str) -> None:
        """Note when something happened last that a run may fail of."""
        self._times[what] = self._tick()

    def _tick(self) -> int:
        self._moment += 1
        return self._moment

    def _is_watching(self, run: Run) -> bool:
        """Say whether a run has to notice that its progress is moved.

        It does not before its first batch or lease, while a batch runs, nor after a lease that was killed.
        """
        spark = self.world.spark
        return run.name in spark.known - spark.batches and not run.is_torn

    def _claim(self) -> DriverClaim | None:
        """Return the newest claim that says something of the job's progress."""
        claim = self._last_claim(str(self.cluster.topic(INPUT).id))
        return claim if claim is not None and claim.checkpoint else None

    def _last_claim(self, topic_id: str = "") -> DriverClaim | None:
        """Return what ``JobTopic.last_claim`` does, without its wait for a transaction that a run holds open.

        All runs would stand still for that wait, and the transaction be aborted at its end.
        """
        table = {output.key or b"": output.value or b"" for _, output in self._committed(TopicPartition(JOBS, 0))}
        return newest_claim(table, JOB, topic_id)

    def _is_noticed(self, move: Move, claim: DriverClaim | None) -> bool:
        """Say whether the next run has to notice a move, or to set it right, by what the last claim says it left.

        guarantees.md: after micro-batches at least once, what the group has "is set right by the next run"; "after
        exactly-once micro-batches that were killed, each partition has to be where the last batch began or where it
        ends; after a lease that was killed, no lower than where that began: how far it came is not known, and neither
        is what a batch left above an offset map of the parallel mode".
        """
        if claim is None:
            return False  # no run has begun: the first one goes on where the group is
        if claim.topic_id != str(self.cluster.topic(INPUT).id) or claim_is_authoritative(claim):
            return True
        if move.partition not in claim.offsets:  # it was added since, and begins at its beginning
            return move.after > self._start(move.partition)
        begin, left = claim.offsets[move.partition], claim.left.get(move.partition)
        late = claim.late.get(move.partition, ())
        return move.after < begin if left is None else move.after not in (begin, left, *late)

    def _judge_unnoticed(self, run: Run) -> None:
        """Raise Violation where a run exactly once has looked at progress twice since it was moved."""
        committed = self.cluster.group(GROUP).committed
        for move in self._moves if run.is_exact and run.stream.mode == "microbatch" else ():
            place = TopicPartition(INPUT, move.partition)
            is_there = place in committed and committed[place].offset == move.after != move.before
            if is_there and run.name in move.claims and run.claims >= move.claims[run.name] + 2:
                raise Violation(f"{run.name} has not noticed {move}")

    def _done(self) -> dict[int, int]:
        """Return below which offsets all is done and known to be, for a run that is ordered now.

        guarantees.md: after micro-batches at least once by their claims and their checkpoint, after all other runs by
        the group.
        """
        claim = self._claim()
        if self._moves or claim is None or claim.topic_id != str(self.cluster.topic(INPUT).id):
            return {}
        if not claim_is_authoritative(claim):
            committed = self.cluster.group(GROUP).committed
            return {each.partition: left.offset for each, left in committed.items() if each.topic == INPUT}
        kept = self.world.spark.storage.get(claim.checkpoint)
        is_done = kept is not None and claim.batch_id in kept.commits
        return dict(claim.ends if is_done and claim.batch_id >= 0 else claim.offsets)

    def _judge_moves(self, claim: DriverClaim | None) -> None:
        """Excuse what was moved while a run was under way, where the next one cannot know of it by the last claim."""
        if watched := [each for each in self._moves if not each.is_between]:
            self._excuse([each for each in watched if not self._is_noticed(each, claim)])

    def _see_end(self, run: Run) -> None:
        """Let an order to go on where the group is be given again where its run has not begun."""
        if not (run.stream.fail_on_moved_progress or run.has_begun):
            self.goes_on_after_move = True
            self._note("lose")

    def _may_fail_of(self, run: Run, what: str) -> bool:
        """Say whether something happened that no run has set right before this one began."""
        at = self._times.get(what)
        return at is not None and not any(
            each.name_of_end == "succeeded" and each.began > at and each.ended < run.began for each in self.runs
        )

    def _is_since(self, run: Run, what: str) -> bool:
        return self._times.get(what, -1) > run.began

    def _start(self, partition: int) -> int:
        return self.cluster.log(TopicPartition(INPUT, partition)).start

    def _excuse(self, moves: Sequence[Move]) -> None:
        """Let what somebody has moved over be lost, and what he has moved back be done again."""
        self._read_outputs()
        for move in moves:
            self.told.lost |= {
                each
                for each in self.missing()
                if each.partition == move.partition and move.before <= each.offset < move.after
            }
            self._let_double(move.partition, move.after)
        self._moves = [each for each in self._moves if each not in moves]

    def _let_double(self, partition: int, begin: int) -> None:
        """Let what is in a partition's log from an offset on be done again."""
        end = self.cluster.log(TopicPartition(INPUT, partition)).end
        self.told.doubled |= {Place(partition, each, self._topics) for each in range(begin, end)}

    def _see_commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset], wakes: int) -> None:
        """Hear of offsets that are committed. Those of one that was replaced go back.

        guarantees.md: "An attempt that was frozen for ten seconds, or hears that somebody else has claimed the job,
        commits nothing any more"; what it had asked for before that is taken.
        """
        process = self.runtime.process
        if group != GROUP or process is OUTSIDE:
            return
        run = next(each for each in self.runs if each.name == _run_of(process))
        run.lacks_commits |= self.visitor is not None and not run.is_exact
        if "worker" in process.name and wakes == process.wakes and not self._is_since(run, "outage"):
            if process.slept_s > DEFAULT_TIMINGS.renewal_timeout_s:
                self._violations.append(
                    f"{process.name} commits {offsets}, and stood still for {process.slept_s:.0f} s"
                )
            heard = process.steps - run.steps.get(process, process.steps)
            if run.replaced_s is not None and heard > HEARD_STEPS and self.runtime.seconds - run.replaced_s > HEARD_S:
                self._violations.append(f"{process.name} commits {offsets}, and the job was claimed long before")
        is_late = run.is_outlived if run.is_exact else process in self.zombies or run.is_torn
        if is_late:
            self._note("lose")
            for place, committed in offsets.items():
                self._let_double(place.partition, committed.offset)

    # -- what holds ---------------------------------------------------------------------------------------------------

    def times(self, place: Place) -> int:
        """Return how often the output of a record was written, as of the last check."""
        return len(self._written.get(place, ()))

    def missing(self) -> set[Place]:
        """Return the records that have to be done and whose outputs are not there."""
        return self.due - self._written.keys() - self.told.lost

    def check(self) -> None:
        """Raise Violation where something does not hold at this moment."""
        if self._violations:
            raise Violation(self._violations[0])
        self._read_outputs()
        runs = {run.name: run for run in self.runs}
        for place, names in self._written.items():
            if len(names) > 1 and place not in self.told.doubled:
                for number, name in enumerate(names):
                    if (
                        number
                        and place.offset < runs[name].done.get(place.partition, 0)
                        and place.topic == runs[name].topic
                    ):
                        raise Violation(
                            f"the output of {place} was committed by {names[:number]}, and {name} repeats it"
                        )
                    # What one that began on an older topic does of a newer one is done again: guarantees.md.
                    others = [runs[each] for each in names[:number] if runs[each].topic == place.topic]
                    if not all(_may_repeat(runs[name], each) for each in others):
                        text = f"the output of {place} was written by {names[:number]}, and once more by {name}"
                        raise Violation(text)

    def _notice(self) -> None:
        """See what runs began and ended, and check what has to hold at a run's end."""
        place = TopicPartition(JOBS, 0)
        if self.cluster.log(place).end > self._seen_jobs:
            records, self._seen_jobs = self.cluster.fetch(place, self._seen_jobs, 1_000, committed=False)
            for record in records:
                process = self.world.environment.written.get((place, record.offset), OUTSIDE)
                if process is not OUTSIDE:
                    self._hear(record.key or b"", record.value or b"", _run_of(process))
        for run in self.alive:
            if run.actor.is_done:
                run.is_over, run.ended = True, self._tick()
                self.check()
                self._see_end(run)
                self._check_end(run)

    def _hear(self, key: bytes, value: bytes, name: str) -> None:
        """Hear of what a run wrote about its job: that it runs, or a claim, which takes the job from others."""
        author = next(run for run in self.runs if run.name == name)
        is_claim = key == f"{JOB}/batch".encode()
        if is_claim and b'"ended":false' in value and b'"batch_id":-1' not in value:
            author.claims += 1
            self._judge_unnoticed(author)
        for run in self.runs:
            is_report = b"/report/" in key and b'"state":"running"' in value
            if is_report and b" is paused " not in value and run is author:  # one that waits has no progress yet
                run.has_begun = self._has_begun = True
                if run.is_refused:
                    raise Violation(f"{run.name} begins after a release with other transactional ids")
            if is_claim and run is not author and not run.is_over:
                if run.replaced_s is None:
                    run.replaced_s = self.runtime.seconds
                    run.steps = {each: each.steps for each in self._processes(run)}
                run.is_torn = True
                run.is_outlived |= not author.is_exact
                self._judge_moves(self._heard_claim)
        if is_claim:
            claim = decode(DriverClaim, value)
            self._heard_claim = claim if claim.checkpoint else None

    def _read_outputs(self) -> None:
        """Read what is committed, and see that it is in order."""
        self._written.clear()
        topics = {run.name: run.topic for run in self.runs}
        order: dict[tuple[int, int, bytes | None], int] = {}
        place = TopicPartition(OUTPUT, 0)
        for offset, output in self._committed(place):
            source, author = _place_of(output), _run_of(self.world.environment.written[place, offset])
            if source not in self._written and topics[author] == source.topic:
                key = source.partition, source.topic, output.key
                before = order.get(key, -1)
                if source.offset < before and source not in self.told.doubled | self.told.lost:
                    raise Violation(f"the output of {source} comes after that of {before}, which has the same key")
                order[key] = source.offset
            self._written[source].append(author)

    def _committed(self, place: TopicPartition) -> Iterator[tuple[int, Output]]:
        """Yield what is committed, also what an open transaction before it hides until the coordinator aborts that."""
        log = self.cluster.log(place)
        for entry in log.read(log.start, EVERYTHING, committed=False)[0]:
            is_committed = entry.transaction is None or entry.transaction.fate is TransactionOutcome.COMMITTED
            if entry.output is not None and is_committed:
                yield entry.offset, entry.output

    def _check_end(self, run: Run) -> None:
        error = run.actor.error
        if isinstance(error, BrokerUnavailable) and self._is_since(run, "outage"):
            self.crash(run)  # what it failed with could not be reported
            return
        if error is not None:
            raise Violation(f"{run.name} raised {error!r}") from error
        report = run.report = run.actor.result
        assert report is not None
        COUNTS[f"{run.stream.mode} {run.stream.delivery}: {run.name_of_end}"] += 1
        if not run.stream.fail_on_data_loss:
            self._count_lost(run, report)
        if report.state is JobState.FAILED:
            self._tear(run)
            self._check_failure(run, report)
            return
        self._judge_moves(self._claim())
        if not run.has_begun:
            return
        self._kept_since = run.began_s
        ends = {} if self._is_since(run, "recreate") else run.ends
        missing = {
            each for each in self.missing() if each.offset < ends.get(each.partition, 0)
        } - self._hanging_outputs()
        if report.state is JobState.SUCCEEDED and missing:
            raise Violation(f"{run.name} has caught up, and nothing was made of {sorted(missing)}")

    def _count_lost(self, run: Run, report: JobReport) -> None:
        """Let what retention removed be lost where a run was ordered to go on after it, and has counted it."""
        gone = {each for each in self.missing() if each.offset < self._start(each.partition)}
        counted = (report.result or {}).get("lost_offsets", 0)
        if report.state is JobState.SUCCEEDED and counted < len(gone):
            raise Violation(f"{run.name} has lost {sorted(gone)}, and has counted {counted}")
        self.told.lost |= gone

    def _check_failure(self, run: Run, report: JobReport) -> None:
        is_replaced = run is not self.runs[-1]
        others = bool(self.alive) or is_replaced
        is_cut_off = self._is_since(run, "outage")
        # It slept through the time that its first claim may take, or the transaction of that.
        overslept = self._is_since(run, "sleep") and not run.has_begun
        expected = {
            "ProgressLost": self._may_fail_of(run, "lose"),
            "OffsetOutOfRange": self._may_fail_of(run, "retention")
            or any(each.offset < self._start(each.partition) for each in self.missing()),
            "GroupInUse": self.visitor is not None or self._is_since(run, "visit"),
            "DeploymentPaused": self._may_fail_of(run, "pause"),
            "Fenced": others,
            # It was fenced, or its first transaction took too long; its order stands, and a restart may succeed.
            "Conflict": others or overslept or is_cut_off,
            "ProducerFenced": others and not run.has_begun,
            "InvalidJob": run.is_refused or self._is_since(run, "recreate"),
            "BrokerUnavailable": is_cut_off or is_replaced,  # by a run that has transactions open
            "KafkaError": overslept,
            "JobFailed": is_cut_off,
            "HangingTransaction": self.cluster.leader_epoch > 0,  # markers were lost
        }
        if not expected.get(report.error or "", False):
            raise Violation(f"{run.name} failed with {report.error}: {report.message}")


def _may_repeat(own: Run, earlier: Run) -> bool:
    """Say whether a run may do again what another one, or it itself, has done: never what is done exactly once.

    One that was replaced and goes on for a while does not know what its successor did, where either is at least once.
    Micro-batches at least once do not know what a lease had done above an offset that is not.
    """
    if own is earlier:
        return not own.is_exact and own.is_disturbed
    if own.number < earlier.number:
        return own.is_torn and not (own.is_exact and earlier.is_exact)
    reads_no_maps = not own.is_exact and (own.stream.mode, earlier.stream.mode) == ("microbatch", "parallel")
    is_torn = earlier.is_torn and (not earlier.is_exact or earlier.is_outlived)
    return reads_no_maps or is_torn or earlier.lacks_commits


@cache
def _modules_of_shards() -> list[Any]:
    """Return the modules that have the number of virtual shards."""
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith("wasmline.") and "VIRTUAL_SHARDS" in vars(module)
    ]


def _place_of(output: Output) -> Place:
    """Return the record that an output was made of."""
    return Place(*map(int, (output.value or b"").split(b"@")))


def _run_of(process: Process) -> str:
    return process.name.partition("/")[0]
