"""Progress that is set on a real broker: where the next run continues, in every mode and delivery."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Literal

import pytest
from click.testing import CliRunner

from wasmline.cli import main
from wasmline.cli.confirmation import user_name
from wasmline.control import ChangeCause, ClaimProducer, ClaimWriter, DriverClaim, JobTopic, read_job_events
from wasmline.errors import BrokerUnavailable, InvalidJob, JobBusy, ProgressLost
from wasmline.job_offsets import progress_change
from wasmline.job_offsets.progress_change import JobProgress, read_progress, set_progress
from wasmline.job_offsets.resume_offset_commit import reset_offsets
from wasmline.job_offsets.resume_plan import CheckpointState, TopicState, plan_run
from wasmline.job_specs import FunctionSpec, JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import ConsumerGroups, producer
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.kafka.detached_consumer import detached_consumer
from wasmline.kafka.producer import Record, enqueue
from wasmline.offset_maps import codec
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition

Mode = tuple[Literal["microbatch", "parallel"], Literal["at_least_once", "exactly_once"]]
MODES: list[Mode] = [
    ("microbatch", "at_least_once"),
    ("microbatch", "exactly_once"),
    ("parallel", "at_least_once"),
    ("parallel", "exactly_once"),
]
CAUSE = ChangeCause(reason="the parser is mended", by="ada")
PARTITIONS = 2


class Job:
    """A job on a topic with 100 records in each of two partitions, whose driver is this test."""

    def __init__(self, kafka: RunningKafka, mode: Mode) -> None:
        self.config = kafka.config
        self.topic = kafka.topic(partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            write(kafka, self.topic, partition, ((None, b"%d" % number, [], 1_000 + number) for number in range(100)))
        stream = StreamSpec(function=FunctionSpec(function="m:f", topic=self.topic), mode="parallel", delivery=mode[1])
        self.spec = JobSpec(job=f"job-{uuid.uuid4().hex[:8]}", run="run-1", storage="/s", stream=stream)
        self.mode = mode
        self.jobs = JobTopic(kafka.config)
        self.jobs.submit(self.spec)

    def claim(self, offsets: Mapping[int, int], *, ended: bool = False) -> None:
        """Claim as a driver that has got so far, and whose group is there; unless it has ended, with a batch of 10."""
        state = TopicState.now(self.config, self.topic)
        with closing(ClaimWriter(self.config, self.spec.job, "driver")) as claims:
            claim = DriverClaim(
                run="run-1",
                mode=self.mode[0],
                delivery=self.mode[1],
                driver="driver",
                partitions=PARTITIONS,
                topic=state.name,
                topic_id=state.id,
                offsets=dict(offsets),
                ends={} if ended else {each: offset + 10 for each, offset in offsets.items()},
                left=dict(offsets) if self.mode[1] == "exactly_once" else {},
                ended=ended,
                checkpoint=f"/s/checkpoints/{self.spec.job}/{state.id}",
                batch_id=3,
                deployment=None,
            )
            claims.take_over(lambda _: claim)
        groups = ConsumerGroups(self.config)
        groups.commit_offsets(self.spec.group, {TopicPartition(self.topic, each): at for each, at in offsets.items()})

    def end(self, state: JobState = JobState.FAILED) -> None:
        self.jobs.write_report(JobReport.now(self.spec.job, "run-1", state))

    def set(self, offsets: Mapping[int, int]) -> JobProgress:
        return set_progress(self.config, self.spec.job, lambda _: offsets, cause=CAUSE)

    def next_start(self, checkpoint: CheckpointState | None = None) -> dict[int, int]:
        """Return where the next run continues."""
        state = TopicState.now(self.config, self.topic)
        last = self.jobs.last_claim(self.spec.job, state.id)
        committed = ConsumerGroups(self.config).committed(self.spec.group, self.topic)
        assert self.spec.stream is not None
        stream = self.spec.stream
        if self.mode[0] == "microbatch":
            stream = replace(stream, mode="microbatch", function=None, transform="t")
        return plan_run(
            last, checkpoint or CheckpointState(), committed, state, replace(self.spec, stream=stream), "next"
        ).offsets


def write(kafka: RunningKafka, topic: str, partition: int, records: Iterable[Record]) -> None:
    client = producer(kafka.config)
    for record in records:
        enqueue(client, topic, record, None, partition)
    assert client.flush(30) == 0


SHORT_MODES: list[object] = [
    MODES[0],
    *(pytest.param(mode, marks=pytest.mark.long, id=" ".join(mode)) for mode in MODES[1:3]),
    MODES[3],
]


@pytest.fixture(params=SHORT_MODES, ids=" ".join)
def job(kafka: RunningKafka, request: pytest.FixtureRequest) -> Iterator[Job]:
    made = Job(kafka, request.param)
    with closing(made.jobs):
        yield made


@pytest.mark.parametrize("ended", [False, True], ids=["killed", "ended"])
def test_the_next_run_continues_where_it_was_told_to(job: Job, ended: bool) -> None:
    job.claim({0: 40, 1: 50}, ended=ended)
    job.end()
    assert read_progress(job.config, job.spec.job).offsets == {0: 40, 1: 50}
    if job.mode == MODES[0] and not ended:
        with pytest.raises(InvalidJob, match="every partition: only the checkpoint"):
            job.set({0: 0})
        job.set({0: 0, 1: 50})
    else:
        assert job.set({0: 0}).offsets == {0: 0, 1: 50}
    assert job.next_start() == {0: 0, 1: 50}
    assert job.set({0: 100, 1: 7}).committed == {0: 100, 1: 7}
    assert job.next_start() == read_progress(job.config, job.spec.job).offsets == {0: 100, 1: 7}
    events = [each for each in read_job_events(job.config, job.spec.job) if each.action == "set progress"]
    assert [(each.offsets, each.cause) for each in events] == [({0: 0, 1: 50}, CAUSE), ({0: 100, 1: 7}, CAUSE)]


def test_progress_can_be_set_before_the_first_run(job: Job) -> None:
    job.end()
    assert read_progress(job.config, job.spec.job).offsets == {0: 0, 1: 0}
    claim = ClaimWriter.claim

    def killed(writer: ClaimWriter, *arguments: Any, **others: Any) -> None:
        claim(writer, *arguments, **others)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClaimWriter, "claim", killed)
        with pytest.raises(KeyboardInterrupt):
            job.set({1: 30})
    assert job.next_start() in ({0: 0, 1: 0}, {0: 0, 1: 30})
    job.set({1: 30})
    assert job.next_start() == {0: 0, 1: 30}


def test_a_kill_on_the_way_leaves_the_progress_before_or_the_one_after(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.claim({0: 40, 1: 50})
    job.end()
    claim = ClaimWriter.claim

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(progress_change, "reset_offsets", killed)
    with pytest.raises(KeyboardInterrupt):
        job.set({0: 10, 1: 90})
    assert job.next_start() in ({0: 40, 1: 50}, {0: 10, 1: 90})
    monkeypatch.undo()
    calls: list[object] = []

    def killed_at_the_end(writer: ClaimWriter, *arguments: Any, **others: Any) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        claim(writer, *arguments, **others)

    monkeypatch.setattr(ClaimWriter, "claim", killed_at_the_end)
    with pytest.raises(KeyboardInterrupt):
        job.set({0: 20, 1: 80})
    assert job.next_start() == {0: 20, 1: 80}
    job.set({0: 30, 1: 70})
    assert job.next_start() == {0: 30, 1: 70}


@pytest.mark.parametrize("job", MODES[-1:], indirect=True)
def test_a_takeover_whose_answer_is_lost_is_no_other_driver(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.claim({0: 40, 1: 50})
    job.end()
    claim = ClaimProducer.claim

    def unanswered(producer: ClaimProducer, *arguments: Any) -> None:
        claim(producer, *arguments)
        monkeypatch.undo()
        raise BrokerUnavailable("no answer", bootstrap_servers="b:1")

    monkeypatch.setattr(ClaimProducer, "claim", unanswered)
    job.set({0: 0, 1: 0})
    assert job.next_start() == {0: 0, 1: 0}


@pytest.mark.parametrize("job", [MODES[0], MODES[3]], indirect=True)
def test_a_job_with_a_driver_is_refused_and_so_is_one_that_gets_a_driver_meanwhile(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.claim({0: 40, 1: 50})
    job.end(JobState.RUNNING)
    with pytest.raises(JobBusy, match="is live"):
        job.set({0: 0})
    job.end()

    def overtaken(*arguments: Any) -> None:
        with closing(ClaimWriter(job.config, job.spec.job, "newer")) as claims:
            claims.take_over(lambda last: replace(last, driver="newer") if last else pytest.fail("no claim"))
        reset_offsets(*arguments)

    monkeypatch.setattr(progress_change, "reset_offsets", overtaken)
    with pytest.raises(JobBusy, match="started meanwhile"):
        job.set({0: 0, 1: 0})
    assert job.next_start() in ({0: 40, 1: 50}, {0: 0, 1: 0})


@pytest.mark.parametrize("job", MODES[-1:], indirect=True)
def test_lost_progress_is_set_for_every_partition_or_not_at_all(job: Job) -> None:
    job.claim({0: 40, 1: 50})
    job.end()
    ConsumerGroups(job.config).commit_offsets(job.spec.group, {TopicPartition(job.topic, 1): 5})
    found = read_progress(job.config, job.spec.job)
    assert (found.offsets, "has 5 committed" in found.problem) == ({}, True)
    with pytest.raises(InvalidJob, match="for every partition"):
        job.set({1: 50})
    with pytest.raises(ProgressLost):
        job.next_start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress_change, "reset_offsets", interrupted)
        with pytest.raises(KeyboardInterrupt):
            job.set({0: 40, 1: 50})
    with pytest.raises(ProgressLost):
        job.next_start()
    job.set({0: 40, 1: 50})
    assert job.next_start() == {0: 40, 1: 50}


def interrupted(*arguments: Any) -> None:
    if arguments[3]:
        raise KeyboardInterrupt


@pytest.mark.parametrize("job", MODES[-1:], indirect=True)
def test_a_first_run_that_begins_at_the_end_keeps_that_for_the_other_partitions(job: Job) -> None:
    assert job.spec.stream is not None
    job.jobs.update(job.jobs.order(job.spec.job), replace(job.spec.stream, starting_offsets="latest"))
    job.end()
    job.set({0: 10})
    assert job.next_start() == {0: 10, 1: 100}


@pytest.mark.parametrize("job", MODES[:1], indirect=True)
def test_the_claim_about_a_topic_that_was_left_is_kept(job: Job, kafka: RunningKafka) -> None:
    job.claim({0: 40, 1: 50}, ended=True)
    before, function = job.topic, job.spec.stream
    assert function is not None
    assert function.function is not None
    old = TopicState.now(job.config, before).id
    job.topic = kafka.topic(partitions=PARTITIONS)
    moved = replace(function, function=replace(function.function, topic=job.topic))
    job.jobs.update(job.jobs.order(job.spec.job), moved)
    job.end()
    job.set({0: 0, 1: 0})
    claim = job.jobs.last_claim(job.spec.job, old)
    assert claim is not None
    assert (claim.topic, claim.offsets) == (before, {0: 40, 1: 50})


@pytest.mark.parametrize("job", MODES[3:], indirect=True)
def test_a_partition_that_stays_keeps_its_offset_map(job: Job) -> None:
    job.claim({0: 40, 1: 50})
    job.end()
    first, second = (TopicPartition(job.topic, each) for each in range(2))
    done = codec.encode(50, 59, [52])
    store = LibrdkafkaOffsetStore()
    client = detached_consumer(job.config, job.spec.group)
    store.commit(client, {second: CommittedOffset(50, done)}, 30)
    job.set({0: 0})
    found = store.committed(client, [first, second], 30)
    client.close()
    assert (found[first], found[second]) == (CommittedOffset(0), CommittedOffset(50, done))


@pytest.mark.parametrize("job", MODES[-1:], indirect=True)
def test_an_offset_that_the_topic_does_not_have_is_refused(job: Job) -> None:
    job.claim({0: 40, 1: 50})
    job.end()
    for offsets, text in (({0: 101}, "cannot continue at 101"), ({2: 0}, "has no partition 2")):
        with pytest.raises(InvalidJob, match=text):
            job.set(offsets)
    assert job.next_start() == {0: 40, 1: 50}


def test_the_command_line_shows_and_sets(kafka: RunningKafka) -> None:
    job = Job(kafka, ("parallel", "exactly_once"))
    job.claim({0: 40, 1: 50}, ended=True)
    job.end()

    def run(*arguments: str, status: int = 0) -> Any:
        settings = ["-X", f"bootstrap.servers={kafka.bootstrap_servers}"]
        result = CliRunner().invoke(main, ["progress", *arguments, *settings])
        assert result.exit_code == status, result.output
        return result

    def set_to(target: str, *options: str) -> dict[int, int]:
        done = run("set", job.spec.job, "--to", target, "--reason", "x", "--yes", "--json", *options)
        return {each["partition"]: each["next"] for each in json.loads(done.stdout)["partitions"]}

    assert re.search(r"0 +40 +40 +0 +100 +60\n1 +50 +50", run("show", job.spec.job).stdout)
    assert set_to("-45") == {0: 0, 1: 5}
    assert set_to("+200", "--partition", "1") == {0: 0, 1: 100}
    assert set_to("start") == {0: 0, 1: 0}
    assert set_to("1970-01-01T00:00:01.050Z") == {0: 50, 1: 50}
    assert set_to("12", "--partition", "0") == {0: 12, 1: 50}
    assert set_to("end") == {0: 100, 1: 100}
    assert "no terminal" in run("set", job.spec.job, "--to", "start", "--reason", "x", status=2).output
    assert "is neither start" in run("set", job.spec.job, "--to", "soon", "--reason", "x", "-y", status=1).output
    asked = run("set", job.spec.job, "--to", "-10", "--reason", "x", "-y").stderr
    assert f"{job.topic}-0: 100 -> 90, repeats 10 offsets" in asked
    events = read_job_events(kafka.config, job.spec.job)
    assert {each.cause.by for each in events} == {user_name()}
