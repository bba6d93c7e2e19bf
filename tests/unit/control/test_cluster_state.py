"""The state of a cluster, folded from the records of its control topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from wasmline.control import (
    ChangeCause,
    ClusterState,
    Deployment,
    DeploymentEvent,
    DeploymentSpec,
    JobEvent,
    JobOrder,
    Redrive,
    control_topics,
    job_event_record,
)
from wasmline.control.cluster_state import MAX_GENERATIONS, MAX_LOG_LETTERS, MAX_LOG_LINES, MAX_NAMES, MAX_RECORDS
from wasmline.control.deployment_history import event_record
from wasmline.control.redrive_topic import DeadLetterSelection
from wasmline.documents import encode
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.partition_status import IDLE_AFTER_MS, PartitionStatus

NOW = 1_800_000_000_000


def deployment(name: str = "eta", generation: int = 1, **changes: Any) -> Deployment:
    fields: dict[str, Any] = {
        "version": f"{generation}.0.0",
        "digest": f"sha256:{generation:064x}",
        "input_topic": f"{name}.in",
        "output_topics": (f"{name}.out",),
        "dead_letter_topic": f"{name}.dlq",
    }
    spec = DeploymentSpec(name=name, **fields)
    return replace(Deployment(spec=spec, generation=generation, state="running", updated_ms=generation), **changes)


def order(job: str = "eta-job", transform: str = "eta", run: str = "run-1", **changes: Any) -> JobOrder:
    spec = JobSpec(job=job, run=run, storage="/s", stream=StreamSpec(transform=transform, trigger_interval="1 second"))
    return replace(JobOrder(spec=spec, wanted="running"), **changes)


def status(partition: int = 0, **changes: Any) -> PartitionStatus:
    fields: dict[str, Any] = {
        "job": "eta-job",
        "transform": "eta",
        "topic": "eta.in",
        "digest": "d",
        "generation": 1,
        "state": "running",
        "offset": 10,
        "lag": 5,
        "rate": 2.5,
        "since_offset": 0,
        "updated_ms": NOW,
        **changes,
    }
    return PartitionStatus(partition=partition, **fields)


class Cluster:
    """Writes records to a state as the topics would have them."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.state.tick(NOW)

    def put(self, topic: str, key: str, value: object) -> None:
        data = value if isinstance(value, bytes) or value is None else encode(value)
        self.state.apply(topic, key.encode(), data, NOW)

    def deploy(self, made: Deployment, **cause: str) -> None:
        self.put(control_topics.DEPLOYMENTS, made.spec.name, made)
        record = event_record(DeploymentEvent(action="deploy", deployment=made, cause=ChangeCause(**cause)))
        self.state.apply(record.topic, record.key, record.value, NOW)

    def order(self, made: JobOrder, state: JobState | None = JobState.RUNNING, updated_ms: int = NOW) -> None:
        job, run = made.spec.job, made.spec.run
        self.put(control_topics.JOBS, job, made)
        if state is not None:
            report = replace(JobReport.now(job, run, state), updated_ms=updated_ms)
            self.put(control_topics.JOBS, f"{job}/report/{run}", report)

    def report(self, *statuses: PartitionStatus) -> None:
        for each in statuses:
            self.put(control_topics.STATUS, f"{each.job}/{each.partition}", each)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_transform_has_the_job_and_the_partitions_that_run_it(cluster: Cluster) -> None:
    cluster.deploy(deployment())
    cluster.order(order())
    cluster.report(status(1), status(0, lag=7))
    view = cluster.state.job_of("eta")
    assert view is not None
    assert (view.order.spec.job, view.condition) == ("eta-job", "running")
    assert [(each.partition, each.lag) for each in cluster.state.partitions_of("eta")] == [(0, 7), (1, 5)]


def test_the_lag_is_that_of_the_topics_end(cluster: Cluster) -> None:
    cluster.deploy(deployment())
    cluster.order(order())
    cluster.report(status(0, offset=10, lag=0))
    cluster.state.set_ends({"eta.in": {0: 25, 1: 3}})
    [partition] = cluster.state.partitions_of("eta")
    assert (partition.lag, cluster.state.partition_count("eta.in")) == (15, 2)
    cluster.state.set_ends({})
    assert cluster.state.partition_count("eta.in") is None


def test_only_partitions_of_the_topic_that_was_read_last_count(cluster: Cluster) -> None:
    cluster.order(order())
    cluster.report(status(0, topic="old.in", updated_ms=NOW - 1), status(1, topic="new.in"))
    assert [each.topic for each in cluster.state.partitions_of("eta")] == ["new.in"]
    cluster.deploy(deployment())
    assert cluster.state.partitions_of("eta") == []
    cluster.report(status(2, topic="eta.in", updated_ms=NOW - 9))  # of a machine whose clock is behind
    assert [each.partition for each in cluster.state.partitions_of("eta")] == [2]


def test_a_job_that_runs_another_transform_has_none_of_the_partitions_before(cluster: Cluster) -> None:
    cluster.deploy(deployment())
    cluster.deploy(deployment("fare", spec=replace(deployment("fare").spec, input_topic="eta.in")))
    cluster.order(order())
    cluster.report(status())
    cluster.order(order(transform="fare", run="run-2"))
    assert (cluster.state.job_of("eta"), cluster.state.partitions_of("fare")) == (None, [])
    view = cluster.state.job_of("fare")
    assert view is not None
    assert view.order.spec.run == "run-2"


def test_the_redrive_of_a_task_is_known_by_its_name(cluster: Cluster) -> None:
    redrive = Redrive(
        id="redrive/manual__1/redrive", topic="eta.dlq", topic_id="i", selection=DeadLetterSelection(), ends={},
        started_ms=1, updated_ms=1,
    )  # fmt: skip
    cluster.put(control_topics.REDRIVES, f"eta.dlq/i/redrive/{redrive.id}", redrive)
    cluster.put(control_topics.REDRIVES, "eta.dlq/i/offsets/0/1", b"{}")
    assert cluster.state.redrives("eta.dlq") == [redrive]


def test_names_of_what_is_gone_are_bounded(cluster: Cluster) -> None:
    cluster.deploy(deployment())
    for number in range(MAX_NAMES + 50):
        cluster.put(control_topics.DEPLOYMENTS, f"gone-{number}", deployment(f"gone-{number}"))
        cluster.put(control_topics.DEPLOYMENTS, f"gone-{number}", None)
    changes = cluster.state.changed_since(-1, "transforms")
    assert len(changes) <= MAX_NAMES + 1
    assert "eta" in changes
    assert 0 < cluster.state.forgotten < cluster.state.number
    assert all(number > cluster.state.forgotten for name, number in changes.items() if name != "eta")


def test_what_is_known_of_a_job_goes_with_its_order(cluster: Cluster) -> None:
    cluster.order(order())
    cluster.report(status())
    cluster.put(control_topics.JOBS, "eta-job", None)
    cluster.order(order(), None)
    view = cluster.state.require_job("eta-job")
    assert (view.partitions, view.overview.report, view.condition) == ((), None, "ordered")


def test_partitions_are_stopped_after_their_run(cluster: Cluster) -> None:
    cluster.order(order(), JobState.FAILED)
    cluster.report(status(0), status(1, state="failed"))
    assert [each.state for each in cluster.state.partitions_of("eta")] == ["stopped", "failed"]


def test_a_driver_falls_silent_by_the_time(cluster: Cluster) -> None:
    cluster.order(order())
    cluster.report(status())
    cluster.state.tick(NOW)
    before = cluster.state.number
    cluster.state.tick(NOW + 1_000)
    assert list(cluster.state.changed_since(before, "jobs")) == []
    cluster.state.tick(NOW + 3_600_000)
    assert cluster.state.changed_since(before, "jobs").keys() == {"eta-job"}
    assert cluster.state.changed_since(before, "transforms").keys() == {"eta"}
    view = cluster.state.require_job("eta-job")
    assert (view.condition, [each.state for each in view.partitions]) == ("silent", ["stopped"])


def test_a_partition_at_its_topics_end_is_idle_after_a_while_without_reports(cluster: Cluster) -> None:
    cluster.deploy(deployment())
    cluster.order(order(), updated_ms=NOW + 60_000)
    cluster.state.set_ends({"eta.in": {0: 10, 1: 13}})
    skewed = NOW + 3_600_000  # the clock of a driver does not count
    cluster.report(status(0, updated_ms=skewed), status(1, updated_ms=skewed), status(2, lag=0, updated_ms=skewed))
    cluster.state.tick(NOW + 10_000)
    cluster.report(status(1, updated_ms=skewed))
    cluster.state.tick(NOW + IDLE_AFTER_MS - 1)
    before = cluster.state.number
    assert [each.rate for each in cluster.state.partitions_of("eta")] == [2.5, 2.5, 2.5]
    cluster.state.tick(NOW + IDLE_AFTER_MS)
    assert cluster.state.changed_since(before, "transforms").keys() == {"eta"}
    assert cluster.state.changed_since(before, "jobs").keys() == {"eta-job"}
    assert [each.rate for each in cluster.state.partitions_of("eta")] == [0.0, 2.5, 2.5]
    cluster.state.set_ends({"eta.in": {0: 10, 1: 10}})
    before = cluster.state.number
    cluster.state.tick(NOW + 10_000 + IDLE_AFTER_MS)
    assert cluster.state.changed_since(before, "jobs").keys() == {"eta-job"}
    assert [each.rate for each in cluster.state.partitions_of("eta")] == [0.0, 0.0, 2.5], (
        "the last one's end is unknown"
    )
    idle = cluster.state.number
    cluster.state.tick(NOW + 10_001 + IDLE_AFTER_MS)
    assert cluster.state.number == idle
    cluster.report(status(0, updated_ms=NOW))
    assert [each.rate for each in cluster.state.partitions_of("eta")] == [2.5, 0.0, 2.5]


def test_changes_are_told_once_also_of_what_is_gone(cluster: Cluster) -> None:
    cluster.deploy(deployment())
    cluster.deploy(deployment("other"))
    first = cluster.state.number
    assert set(cluster.state.changed_since(-1, "transforms")) == {"eta", "other"}
    cluster.put(control_topics.DEPLOYMENTS, "other", None)
    assert cluster.state.changed_since(first, "transforms").keys() == {"other"}
    assert "other" not in cluster.state.deployments
    assert cluster.state.changed_since(cluster.state.number, "transforms") == {}


def test_a_job_that_is_deleted_is_gone_from_its_transform(cluster: Cluster) -> None:
    cluster.deploy(deployment())
    cluster.order(order())
    before = cluster.state.number
    cluster.put(control_topics.JOBS, "eta-job", None)
    assert (cluster.state.job("eta-job"), cluster.state.job_of("eta")) == (None, None)
    assert cluster.state.changed_since(before, "transforms").keys() == {"eta"}


def test_a_change_of_the_ends_changes_only_what_reads_the_topic(cluster: Cluster) -> None:
    cluster.deploy(deployment())
    cluster.deploy(deployment("other"))
    cluster.order(order())
    cluster.report(status())
    cluster.state.set_ends({"eta.in": {0: 20}, "other.in": {0: 1}})
    before = cluster.state.number
    cluster.state.set_ends({"eta.in": {0: 21}, "other.in": {0: 1}})
    assert cluster.state.changed_since(before, "transforms").keys() == {"eta"}
    assert cluster.state.changed_since(before, "jobs").keys() == {"eta-job"}


def test_the_history_has_the_last_generations_and_finds_those_of_a_run(cluster: Cluster) -> None:
    for number in range(1, MAX_GENERATIONS + 6):
        cluster.deploy(deployment(generation=number), run=f"dag/run-{number}", by="ann")
    numbers = [each.number for each in cluster.state.generations("eta")]
    assert numbers == list(range(6, MAX_GENERATIONS + 6))
    [(name, event)] = cluster.state.events_of_run("dag/run-50")
    assert (name, event.deployment.generation, event.cause.by) == ("eta", 50, "ann")
    assert cluster.state.events_of_run("dag/run") == []
    cluster.deploy(deployment("of-a-task"), run="dag/run-50/promote/0")
    assert {name for name, _ in cluster.state.events_of_run("dag/run-50")} == {"eta", "of-a-task"}


def test_events_logs_and_redrives_are_bounded(cluster: Cluster) -> None:
    for number in range(MAX_RECORDS + 5):
        event = JobEvent(action="stop", job="eta-job", run="run-1", changed_ms=number)
        record = job_event_record(event)
        cluster.state.apply(record.topic, record.key, record.value, NOW)
        redrive = Redrive(
            id=f"r{number}", topic="eta.dlq", topic_id="i", selection=DeadLetterSelection(), ends={}, started_ms=number,
            updated_ms=number,
        )  # fmt: skip
        cluster.put(control_topics.REDRIVES, f"eta.dlq/i/redrive/r{number}", redrive)
    for number in range(MAX_LOG_LINES + 7):
        cluster.put(control_topics.LOGS, "eta", b"line %d" % number)
    lines, dropped = cluster.state.log_lines("eta")
    assert (len(lines), dropped, lines[-1].text) == (MAX_LOG_LINES, 7, f"line {MAX_LOG_LINES + 6}")
    assert cluster.state.job_events("eta-job")[0].changed_ms == 5
    assert cluster.state.redrives("eta.dlq")[0].id == "r5"
    assert len(cluster.state.redrives(None)) == MAX_RECORDS


GARBAGE = (b"{}", b"\xff\x00", b"[" * 100_000, b'{"spec_version": 99}')


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        (control_topics.DEPLOYMENTS, b"\xff"),
        (control_topics.HISTORY, b"/eta-job/event/u"),
        (control_topics.HISTORY, b"eta/1/event/u"),
        (control_topics.HISTORY, b"eta/" + b"9" * 5_000 + b"/event/u"),
        (control_topics.JOBS, b"/launcher/main"),
        (control_topics.JOBS, b"eta-job/batch"),
        (control_topics.JOBS, b"eta-job/of-another-release"),
        (control_topics.REDRIVES, b"eta.dlq/i/redrive/r"),
        (control_topics.REDRIVES, b"eta.dlq"),
        (control_topics.STATUS, b"eta-job/1"),
        (control_topics.STATUS, b"eta-job/x"),
        (control_topics.STATUS, b"0"),
        (control_topics.LOGS, b"\xff"),
        (control_topics.STATUS, None),
    ],
)
def test_a_record_of_a_stranger_changes_nothing_and_stops_nothing(
    cluster: Cluster, topic: str, key: bytes | None
) -> None:
    cluster.deploy(deployment())
    cluster.order(order())
    cluster.report(status())
    for value in (*GARBAGE, None):
        cluster.state.apply(topic, key, value, NOW)
    cluster.state.tick(NOW)
    assert cluster.state.require_job("eta-job").order == order()
    assert cluster.state.require_deployment("eta") == deployment()
    assert len(cluster.state.partitions_of("eta")) == 1
    assert [each.number for each in cluster.state.generations("eta")] == [1]


@pytest.mark.parametrize("value", GARBAGE)
def test_a_record_that_cannot_be_read_hides_the_one_before_it_until_it_can(cluster: Cluster, value: bytes) -> None:
    cluster.deploy(deployment())
    cluster.order(order())
    before = cluster.state.number
    cluster.put(control_topics.DEPLOYMENTS, "eta", value)
    cluster.put(control_topics.JOBS, "eta-job/report/run-1", value)
    assert "eta" not in cluster.state.deployments
    assert cluster.state.changed_since(before, "transforms").keys() == {"eta"}
    view = cluster.state.require_job("eta-job")
    assert (view.condition, "cannot be read" in view.overview.problem) == ("unknown", True)
    assert len(cluster.state.unreadable) == 2
    cluster.deploy(deployment(generation=2))
    cluster.order(order())
    assert (cluster.state.deployments["eta"].generation, cluster.state.unreadable) == (2, {})
    cluster.put(control_topics.JOBS, "eta-job", value)
    assert (cluster.state.job("eta-job"), cluster.state.job_of("eta")) == (None, None)


def test_a_clock_that_is_ahead_leaves_the_last_hour_as_it_is(cluster: Cluster) -> None:
    cluster.deploy(deployment())
    cluster.order(order(), updated_ms=NOW + 120_000)
    cluster.report(status(updated_ms=NOW), status(updated_ms=NOW + 86_400_000), status(updated_ms=NOW + 2 * 86_400_000))
    cluster.state.tick(NOW + 120_000)
    assert [each and each.rate for each in cluster.state.line("eta", NOW + 120_000)[-1:]] == [2.5]


def test_a_long_log_line_is_cut(cluster: Cluster) -> None:
    cluster.put(control_topics.LOGS, "eta", b"x" * 10 * MAX_LOG_LETTERS)
    [line], _ = cluster.state.log_lines("eta")
    assert len(line.text) == MAX_LOG_LETTERS


def test_the_last_hour_is_known_from_statuses_and_goes_on_with_the_time(cluster: Cluster) -> None:
    cluster.deploy(deployment())
    cluster.order(order())
    minute = 60_000
    cluster.report(status(0, updated_ms=NOW - 3 * minute, rate=1.0), status(1, updated_ms=NOW - 3 * minute, rate=2.0))
    cluster.report(status(0, updated_ms=NOW - 2 * minute, rate=10.0, generation_dead_letters=4))
    cluster.report(status(0, updated_ms=NOW - minute, rate=7.0))
    cluster.state.tick(NOW + 10_000)
    samples = cluster.state.line("eta", NOW + 10_000)
    assert len(samples) == 60
    assert [each and each.rate for each in samples[-4:]] == [3.0, 12.0, None, 9.0]
    assert [each and each.dead_letters for each in samples[-4:]] == [0, 4, None, 0]
    assert samples[:-4] == [None] * 56
    assert cluster.state.line("unknown", NOW) == [None] * 60
