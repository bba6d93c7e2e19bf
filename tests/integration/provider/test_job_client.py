"""Runs of jobs as tasks see them, on a real broker: ordered once, found again, followed, stopped, lost."""

import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from demo_stack.job_messages import JobMessages
from demo_stack.stack import close_orphans
from wasmline import job_specs
from wasmline.clock import now_ms
from wasmline.control import JobTopic, LaunchRequest, control_topics, run_liveness
from wasmline.control.job_keys import report_key
from wasmline.digests import digest_of
from wasmline.documents import encode, plain
from wasmline.errors import (
    Conflict,
    DuplicateJob,
    JobBusy,
    JobFailed,
    JobNotFound,
    LauncherUnavailable,
)
from wasmline.job_specs import FunctionSpec, JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import CompactedTopic, produce_all
from wasmline.restart_policy import is_transient
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.job_client import (
    EnsuredRun,
    JobClient,
    JobRun,
    SilentRun,
    task_instance_key,
)
from wasmline_provider.local import TaskState
from wasmline_provider.operators.job import OUTDATED
from wasmline_provider.operators.model import TrainModelOperator

OWNER, OTHER_OWNER = "owner", "other"


class JobClientHarness:
    """A JobClient on the broker of the test run whose drivers are only counted, and that writes reports for them."""

    def __init__(self, kafka: RunningKafka, folder: Path) -> None:
        self.config = kafka.config
        self.topic = JobTopic(kafka.config)
        self.client = JobClient(self.topic, heartbeat=60)
        self.folder = folder
        self.transform = f"identity-{uuid.uuid4()}"
        self.spec = JobSpec(
            job=f"job-{uuid.uuid4()}", run="", storage=str(folder), stream=StreamSpec(transform=self.transform)
        )
        self.launched: list[JobRun] = []

    def order(self, owner: str = OWNER, spec: JobSpec | None = None) -> JobRun:
        return self.ensure(owner, spec).run

    def ensure(self, owner: str = OWNER, spec: JobSpec | None = None, **options: Any) -> EnsuredRun:
        return self.client.ensure(spec or self.spec, owner, lambda: self.folder, self.launched.append, **options)

    def continuous(self, **stream: Any) -> JobSpec:
        """The job as a stream without an end."""
        return replace(self.spec, stream=StreamSpec(transform=self.transform, trigger_interval="1 second", **stream))

    def report(self, run: JobRun, state: JobState, updated_ms: int | None = None, **result: int) -> None:
        last = self.client.report(run)
        updated_ms = updated_ms or last.updated_ms + 1
        self.topic.write_report(replace(last, state=state, result=result, updated_ms=updated_ms))


@pytest.fixture
def harness(kafka: RunningKafka, tmp_path: Path) -> Iterator[JobClientHarness]:
    made = JobClientHarness(kafka, tmp_path)
    yield made
    made.client.close()


def test_a_task_that_starts_again_finds_its_living_run(harness: JobClientHarness) -> None:
    first = harness.order()
    harness.report(first, JobState.RUNNING)
    assert harness.order() == first
    assert harness.launched == [first]
    assert harness.client.state(first) is JobState.RUNNING


@pytest.mark.parametrize("end", [JobState.SUCCEEDED, JobState.STOPPED, JobState.FAILED])
def test_after_an_end_there_is_a_new_run(harness: JobClientHarness, end: JobState) -> None:
    first = harness.order()
    harness.report(first, end)
    second = harness.order()
    assert second.run != first.run
    assert harness.launched == [first, second]


def test_a_run_without_heartbeats_is_lost_and_replaced(
    harness: JobClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_liveness, "DRIVER_HEARTBEAT_TIMEOUT_S", 0.5)
    first = harness.order()
    harness.report(first, JobState.RUNNING, updated_ms=1)
    assert harness.client.state(first) == "lost"
    assert harness.order() != first


@pytest.mark.parametrize("is_begun", [False, True], ids=["nobody began to start its driver", "Spark is slow"])
def test_an_order_whose_client_died_is_replaced_sooner_than_a_driver_that_is_being_started(
    harness: JobClientHarness, monkeypatch: pytest.MonkeyPatch, is_begun: bool
) -> None:
    monkeypatch.setattr(run_liveness, "DRIVER_HEARTBEAT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(job_specs, "DRIVER_HEARTBEAT_TIMEOUT_S", 0.5)
    harness.client = JobClient(harness.topic, heartbeat=2 if is_begun else 60)
    first = harness.ensure(spec=harness.continuous())
    forty_seconds_ago = now_ms() - 40_000
    message = "spark-submit started" if is_begun else ""
    report = replace(harness.client.report(first.run), updated_ms=forty_seconds_ago, message=message)
    harness.topic.write_report(report)
    with pytest.raises(JobFailed, match=r"did not start within \d s"):
        harness.client.await_start(first.run)
    harness.client = JobClient(harness.topic, heartbeat=60)
    second = harness.ensure(OTHER_OWNER, harness.continuous())
    assert second.action == ("adopted" if is_begun else "started")
    assert (second.run == first.run) is is_begun


def test_a_driver_that_starts_slowly_is_adopted_though_it_was_watched_in_vain(harness: JobClientHarness) -> None:
    harness.client = JobClient(harness.topic, heartbeat=600)
    first = harness.ensure(spec=harness.continuous()).run
    starting = replace(JobReport.now(first.job, first.run, JobState.STARTING, "spark-submit started"))
    harness.topic.write_report(replace(starting, updated_ms=starting.updated_ms - 200_000))
    silent = SilentRun(run=first.run, updated_ms=starting.updated_ms - 200_000)
    assert harness.ensure(OTHER_OWNER, harness.continuous(), silent_run=silent).action == "adopted"


def test_a_dead_run_whose_reports_have_a_field_of_a_newer_release_is_replaced(harness: JobClientHarness) -> None:
    first = harness.ensure(spec=harness.continuous()).run
    report = plain(JobReport.now(first.job, first.run, JobState.RUNNING)) | {"colour": "blue"}
    key = report_key(first.job, first.run)
    produce_all(harness.config, control_topics.JOBS, [(key, json.dumps(report).encode(), None, None)])
    silent = SilentRun(run=first.run, updated_ms=report["updated_ms"])
    assert harness.ensure(OTHER_OWNER, harness.continuous(), silent_run=silent).action == "started"


@pytest.mark.parametrize("has_reported", [False, True])
def test_a_run_that_was_watched_in_vain_is_not_waited_for_unless_it_has_reported_since(
    harness: JobClientHarness, monkeypatch: pytest.MonkeyPatch, has_reported: bool
) -> None:
    first = harness.ensure(spec=harness.continuous()).run
    last = now_ms() - 40_000
    harness.report(first, JobState.RUNNING, updated_ms=last)
    if has_reported:
        harness.report(first, JobState.RUNNING, updated_ms=now_ms())
    monkeypatch.setattr(run_liveness, "POLL_INTERVAL_S", 1e6)  # a wait would not end
    silent = SilentRun(run=first.run, updated_ms=last)
    second = harness.ensure(OTHER_OWNER, harness.continuous(), silent_run=silent)
    assert second.action == ("adopted" if has_reported else "started")


def test_another_task_s_live_run_is_left_alone(harness: JobClientHarness) -> None:
    first = harness.order()
    with pytest.raises(JobBusy, match=first.run):
        harness.order(OTHER_OWNER)
    harness.report(first, JobState.SUCCEEDED)
    assert harness.order(OTHER_OWNER).run.startswith(OTHER_OWNER)


def test_a_live_run_with_another_specification_is_stopped_before_the_new_one(harness: JobClientHarness) -> None:
    first = harness.order()
    changed = replace(harness.spec, stream=StreamSpec(transform=harness.transform, max_offsets_per_trigger=7))
    harness.client = JobClient(harness.topic, heartbeat=1)  # the wait for the old run's end ends with its heartbeat
    second = harness.order(spec=changed)
    assert second.run != first.run
    assert harness.topic.order(harness.spec.job).spec.run == second.run


def test_a_continuous_stream_is_adopted_by_any_task_that_wants_the_same(harness: JobClientHarness) -> None:
    first = harness.ensure(spec=harness.continuous())
    harness.report(first.run, JobState.RUNNING)
    second = harness.ensure(OTHER_OWNER, harness.continuous())
    assert (first.action, second.action) == ("started", "adopted")
    assert second.run == first.run
    assert harness.launched == [first.run]


def test_a_change_that_leases_take_over_is_written_to_the_order_of_the_live_run(harness: JobClientHarness) -> None:
    first = harness.ensure(spec=harness.continuous(mode="parallel", max_concurrency=4))
    harness.report(first.run, JobState.RUNNING)
    changed = harness.continuous(mode="parallel", max_concurrency=8, ordering="partition", tasks=2)
    second = harness.ensure(OTHER_OWNER, changed)
    assert (second.action, second.run) == ("updated", first.run)
    assert second.changed == ("stream.max_concurrency", "stream.ordering", "stream.tasks")
    assert harness.topic.order(harness.spec.job).spec == replace(changed, run=first.run.run)
    assert harness.ensure(OTHER_OWNER, changed).action == "adopted"
    assert harness.launched == [first.run]


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ({"delivery": "at_least_once"}, {"delivery": "exactly_once"}, "stream.delivery"),
        ({"max_offsets_per_trigger": 7}, {"max_offsets_per_trigger": 8}, "stream.max_offsets_per_trigger"),
        ({"mode": "microbatch"}, {"mode": "parallel"}, "stream.mode"),
    ],
)
def test_any_other_change_restarts_the_stream_and_names_the_fields(
    harness: JobClientHarness, before: dict[str, Any], after: dict[str, Any], changed: str
) -> None:
    first = harness.ensure(spec=harness.continuous(**before))
    harness.report(first.run, JobState.RUNNING)
    second = harness.ensure(OTHER_OWNER, harness.continuous(**after))
    assert (second.action, second.changed) == ("restarted", (changed,))
    assert str(second) == f"job {harness.spec.job}, run {second.run.run}: restarted ({changed} changed)"
    assert harness.launched == [first.run, second.run]


def test_other_settings_of_spark_restart_the_stream(harness: JobClientHarness) -> None:
    first = harness.ensure(spec=harness.continuous(), submit_digest="1 GB")
    harness.report(first.run, JobState.RUNNING)
    assert harness.ensure(OTHER_OWNER, harness.continuous(), submit_digest="1 GB").action == "adopted"
    second = harness.ensure(OTHER_OWNER, harness.continuous(), submit_digest="2 GB")
    assert (second.action, second.changed) == ("restarted", ("submit settings",))


def test_a_stream_that_died_is_started_by_whoever_wants_it(harness: JobClientHarness) -> None:
    first = harness.ensure(spec=harness.continuous())
    harness.report(first.run, JobState.FAILED)
    assert harness.ensure(OTHER_OWNER, harness.continuous()).action == "started"


def test_a_stream_that_a_user_stopped_stays_stopped_unless_it_is_to_start_again(harness: JobClientHarness) -> None:
    first = harness.ensure(spec=harness.continuous())
    harness.report(first.run, JobState.STOPPED)
    harness.client.stop(first.run)
    assert harness.ensure(OTHER_OWNER, harness.continuous(), restart_stopped=False).action == "left_stopped"
    assert harness.launched == [first.run]
    assert harness.ensure(OTHER_OWNER, harness.continuous()).action == "started"


def test_a_stream_that_the_system_stopped_is_still_wanted(harness: JobClientHarness) -> None:
    first = harness.ensure(spec=harness.continuous())
    harness.report(first.run, JobState.FAILED)
    harness.topic.stop(harness.spec.job, first.run.run, by="system")
    assert harness.ensure(OTHER_OWNER, harness.continuous(), restart_stopped=False).action == "started"


def test_a_second_job_for_the_same_transform_is_refused_with_the_name_of_the_first(harness: JobClientHarness) -> None:
    first = harness.order(spec=harness.continuous())
    second = replace(harness.continuous(), job=f"{harness.spec.job}-2")
    harness.report(first, JobState.STOPPED)  # it would read the topic from its beginning, whatever the first one does
    with pytest.raises(DuplicateJob, match=f"beside job {harness.spec.job}") as refused:
        harness.order(OTHER_OWNER, second)
    assert refused.value.job == harness.spec.job
    assert harness.launched == [first]
    harness.topic.delete(first.job, first.run)
    assert harness.ensure(OTHER_OWNER, second).action == "started"


def test_a_second_job_for_the_same_function_on_the_same_topic_is_refused(harness: JobClientHarness) -> None:
    def function(job: str, topic: str) -> JobSpec:
        handler = FunctionSpec(function="enrich:one", topic=topic)
        stream = StreamSpec(function=handler, mode="parallel", trigger_interval="1 second")
        return JobSpec(job=job, run="", storage="s", stream=stream)

    harness.order(spec=function(harness.spec.job, harness.transform))
    with pytest.raises(DuplicateJob, match="enrich:one on"):
        harness.order(spec=function(f"{harness.spec.job}-2", harness.transform))
    harness.order(spec=function(f"{harness.spec.job}-2", f"{harness.transform}.other"))


def test_an_order_that_cannot_be_read_neither_stops_other_jobs_nor_stays_for_ever(
    harness: JobClientHarness, kafka: RunningKafka
) -> None:
    broken = f"broken-{uuid.uuid4()}"
    CompactedTopic(kafka.config, control_topics.JOBS).compare_and_set("test", lambda _: {broken.encode(): b"{"})
    first = harness.order(spec=harness.continuous())
    harness.report(first, JobState.STOPPED)
    assert harness.topic.stop_runs({broken: "x", first.job: first.run}) == {broken}
    assert harness.topic.order(first.job).wanted == "stopped"
    assert broken not in [order.spec.job for order in harness.topic.orders()]
    harness.topic.delete(broken, "")
    with pytest.raises(JobNotFound):
        harness.topic.order(broken)


def test_of_many_clients_at_one_moment_one_starts_the_stream(harness: JobClientHarness, kafka: RunningKafka) -> None:
    def ensure(number: int) -> EnsuredRun:
        client = JobClient(JobTopic(kafka.config))
        try:
            return client.ensure(
                harness.continuous(), f"owner{number}", lambda: harness.folder, harness.launched.append
            )
        finally:
            client.close()

    with ThreadPoolExecutor(6) as threads:
        ensured = list(threads.map(ensure, range(6)))
    assert sorted(each.action for each in ensured) == ["adopted"] * 5 + ["started"]
    assert {each.run.run for each in ensured} == {run.run for run in harness.launched}
    assert len(harness.launched) == 1


def test_a_stop_by_a_user_while_a_supervisor_starts_the_stream_wins(harness: JobClientHarness) -> None:
    first = harness.ensure(spec=harness.continuous())
    harness.report(first.run, JobState.FAILED)
    read = harness.topic.order(harness.spec.job)
    harness.topic.stop(harness.spec.job, first.run.run)
    with pytest.raises(Conflict, match="ordered or stopped by another client"):
        harness.topic.submit(replace(harness.continuous(), run="late"), replaces=read)


def test_a_restart_that_is_refused_leaves_the_live_run_alone(harness: JobClientHarness) -> None:
    other = replace(harness.continuous(), job=f"{harness.spec.job}-2")
    other = replace(other, stream=StreamSpec(transform=f"{harness.transform}-2", trigger_interval="1 second"))
    harness.order(spec=other)
    first = harness.order(spec=harness.continuous())
    harness.report(first, JobState.RUNNING)
    taken = replace(harness.continuous(), stream=other.stream)
    with pytest.raises(DuplicateJob):
        harness.order(spec=taken)
    order = harness.topic.order(first.job)
    assert (order.spec.run, order.wanted) == (first.run, "running")


def test_an_order_that_was_written_without_an_answer_is_not_written_over_a_stop(harness: JobClientHarness) -> None:
    spec = replace(harness.continuous(), run="run-1")
    harness.topic.submit(spec, replaces=None)
    harness.topic.stop(spec.job, spec.run)
    harness.topic.submit(spec, replaces=None)
    assert harness.topic.order(spec.job).is_stopped_by_user


def test_a_launch_that_fails_is_reported_and_leaves_no_living_run(harness: JobClientHarness) -> None:
    def fail(run: JobRun) -> None:
        raise OSError("no spark-submit here")

    with pytest.raises(OSError, match="no spark-submit"):
        harness.client.ensure(harness.spec, OWNER, lambda: harness.folder, fail)
    run = harness.topic.order(harness.spec.job).spec.run
    report = harness.topic.report(harness.spec.job, run)
    assert report is not None
    assert (report.state, report.error, report.message) == (JobState.FAILED, "OSError", "no spark-submit here")


def test_a_run_of_a_launcher_is_adopted_although_the_launcher_is_away(harness: JobClientHarness) -> None:
    def away() -> Path:
        raise LauncherUnavailable("no heartbeats", launcher="l", alive=())

    spec, request = harness.continuous(), LaunchRequest(launcher="l")
    first = harness.ensure(spec=spec, launch_request=request)
    harness.report(first.run, JobState.RUNNING)
    second = harness.client.ensure(spec, OTHER_OWNER, away, harness.launched.append, launch_request=request)
    assert (second.action, second.run.run, second.run.log) == ("adopted", first.run.run, "a folder of launcher l")
    harness.topic.stop(spec.job, first.run.run)
    assert (
        harness.client.ensure(
            spec, OTHER_OWNER, away, harness.launched.append, launch_request=request, restart_stopped=False
        ).action
        == "left_stopped"
    )
    with pytest.raises(LauncherUnavailable):
        harness.client.ensure(spec, OTHER_OWNER, away, harness.launched.append, launch_request=request)
    assert harness.topic.order(spec.job).spec.run == first.run.run
    assert harness.launched == []


def test_a_stopped_stream_is_left_so_where_a_launcher_that_is_away_would_start_it_now(
    harness: JobClientHarness,
) -> None:
    def away() -> Path:
        raise LauncherUnavailable("no heartbeats", launcher="l", alive=())

    first = harness.ensure(spec=harness.continuous()).run
    harness.topic.stop(first.job, first.run)
    found = harness.client.ensure(
        harness.continuous(), OTHER_OWNER, away, harness.launched.append, launch_request=LaunchRequest(launcher="l"),
        restart_stopped=False,
    )  # fmt: skip
    assert (found.action, found.run.run) == ("left_stopped", first.run)


def test_a_signal_between_the_order_and_the_start_of_the_driver_leaves_no_living_run(
    harness: JobClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = JobTopic.submit

    def interrupted(topic: JobTopic, *arguments: Any, **options: Any) -> None:
        submit(topic, *arguments, **options)
        raise KeyboardInterrupt  # of a signal's handler, before the caller goes on

    ordered: list[JobRun] = []
    monkeypatch.setattr(JobTopic, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        harness.ensure(before_order=ordered.append)
    assert [harness.client.state(run) for run in ordered] == [JobState.FAILED]
    assert harness.launched == []


def test_a_run_that_was_replaced_before_its_driver_started_is_an_error_that_may_pass(harness: JobClientHarness) -> None:
    runs = [harness.ensure(owner, harness.continuous(), submit_digest=owner).run for owner in ("a", "b", "c")]
    harness.topic.write_report(JobReport.now(runs[1].job, runs[1].run, JobState.FAILED, "replaced", error="Fenced"))
    for run in runs[:2]:
        with pytest.raises(JobFailed, match="was replaced before its driver started") as failed:
            harness.client.await_start(run)
        assert is_transient(failed.value.report.get("error"))


def test_a_driver_that_waits_for_the_run_before_has_started_however_long_that_takes(harness: JobClientHarness) -> None:
    run = harness.ensure(spec=harness.continuous()).run
    waiting = JobReport.now(run.job, run.run, JobState.STARTING, "waiting for run a to end")

    def report() -> None:
        for beat in range(100):
            harness.topic.write_report(replace(waiting, updated_ms=waiting.updated_ms + beat))
            if started.done():
                return
            time.sleep(0.2)

    with ThreadPoolExecutor() as pool:
        started = pool.submit(harness.client.await_start, run)
        pool.submit(report)
        assert started.result(timeout=30).message == waiting.message


def test_a_wait_for_a_slow_spark_lasts_as_long_as_the_caller_says(
    harness: JobClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_specs, "DRIVER_START_TIMEOUT_S", 0.1)
    harness.client = JobClient(harness.topic, heartbeat=3)
    run = harness.ensure(spec=harness.continuous()).run
    harness.topic.write_report(JobReport.now(run.job, run.run, JobState.STARTING, "spark-submit started"))
    with pytest.raises(JobFailed, match="did not start within 3 s"):
        harness.client.await_start(run)


def test_a_run_that_reports_again_before_the_next_one_is_ordered_is_adopted(
    harness: JobClientHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cluster took no writes for a while, and takes the heartbeat first and the order then."""
    monkeypatch.setattr(run_liveness, "DRIVER_HEARTBEAT_TIMEOUT_S", 0.5)
    first = harness.ensure(spec=harness.continuous()).run
    harness.report(first, JobState.RUNNING, updated_ms=1)
    submit = JobTopic.submit

    def after_a_heartbeat(topic: JobTopic, *arguments: Any, **options: Any) -> Any:
        harness.topic.write_report(JobReport.now(first.job, first.run, JobState.RUNNING))
        return submit(topic, *arguments, **options)

    monkeypatch.setattr(JobTopic, "submit", after_a_heartbeat)
    second = harness.ensure(OTHER_OWNER, harness.continuous())
    assert (second.action, second.run) == ("adopted", first)


def test_a_late_stop_leaves_a_run_that_has_ended_unless_a_launcher_may_start_it_again(
    harness: JobClientHarness,
) -> None:
    def ordered(suffix: str, **options: Any) -> JobRun:
        stream = StreamSpec(transform=f"{harness.transform}-{suffix}", trigger_interval="1 second")
        return harness.ensure(
            spec=replace(harness.spec, job=f"{harness.spec.job}-{suffix}", stream=stream), **options
        ).run

    request = LaunchRequest(launcher="l")
    ended, restarted, final = ordered("a"), ordered("b", launch_request=request), ordered("c", launch_request=request)
    for run in (ended, restarted):
        harness.report(run, JobState.FAILED)
    harness.topic.write_report(JobReport.now(final.job, final.run, JobState.FAILED, error="ProgressLost"))
    runs = (ended, restarted, final)
    assert harness.topic.stop_runs({run.job: run.run for run in runs}, skip_ended=True) == set()
    assert [harness.topic.order(run.job).wanted for run in runs] == ["running", "stopped", "running"]
    harness.topic.stop(ended.job, ended.run)
    assert harness.topic.order(ended.job).wanted == "stopped"


def test_a_stop_is_a_record_and_waits_for_the_last_report(harness: JobClientHarness) -> None:
    run = harness.order()
    assert harness.client.stop(run, timeout=0.5) is None
    assert harness.topic.order(run.job).wanted == "stopped"
    harness.report(run, JobState.STOPPED)
    stopped = harness.client.stop(run)
    assert stopped is not None
    assert stopped.state is JobState.STOPPED


def test_runs_that_a_killed_stack_left_are_closed_and_ended_ones_are_not_touched(
    harness: JobClientHarness, kafka: RunningKafka
) -> None:
    run = harness.order()
    harness.report(run, JobState.RUNNING, records_in=7)
    close_orphans(kafka.config)
    assert harness.client.report(run).state is JobState.FAILED
    assert "ended with the Airflow" in harness.client.report(run).message
    again = harness.order(OTHER_OWNER)
    harness.report(again, JobState.SUCCEEDED)
    close_orphans(kafka.config)
    assert harness.client.report(again).state is JobState.SUCCEEDED


def test_messages_of_a_task_are_what_its_job_reported_since_it_began(
    harness: JobClientHarness, kafka: RunningKafka
) -> None:
    run = harness.order()
    now = datetime.now(UTC)
    news = JobMessages(kafka.config, {"stream": harness.spec.job, "train": "nobody-ordered-it"})

    def of(state: str, began: datetime) -> dict[str, str]:
        tasks = [TaskState(task=name, state=state, started=began, ended=None, tries=1) for name in ("stream", "train")]
        return news.of(tasks)

    harness.report(run, JobState.RUNNING, records_in=1_000, records_out=990)
    assert of("deferred", now - timedelta(minutes=1)) == {
        "stream": "running: 1,000 records in, 990 out, 0 dead letters"
    }
    assert of("deferred", now + timedelta(minutes=1)) == {}, "what an earlier run said is no news"
    assert of("success", now - timedelta(minutes=1)) == {}
    news.close()


def test_a_task_takes_the_run_of_an_earlier_try_only_if_its_specification_is_the_same_and_it_was_not_skipped(
    harness: JobClientHarness, connection: str
) -> None:
    fields = {"id": "string", "km": "double", "minutes": "double"}
    train: dict[str, Any] = {"model": "eta", "topic": "t", "models": "/m", "fields": fields, "features": ["km"]}

    def operator(**more: int) -> TrainModelOperator:
        return TrainModelOperator(
            task_id="train",
            job=harness.spec.job,
            storage="/s",
            **{**train, "target": "minutes", "identity": "id", **more},
            kafka_conn_id=connection,
        )

    spec = operator().spec({})
    run = harness.order(spec=spec)
    harness.report(run, JobState.SUCCEEDED)
    earlier = {**plain(run), "spec": digest_of(encode(spec))}
    assert operator().get_job_status(earlier, {}) == "succeeded"
    assert operator(trees=99).get_job_status(earlier, {}) == OUTDATED
    assert operator().get_job_status(plain(run), {}) == OUTDATED, "of an earlier release"
    harness.report(run, JobState.SUCCEEDED, skipped=True)
    assert operator().get_job_status(earlier, {}) == OUTDATED


def test_an_owner_is_the_same_for_every_try_and_for_no_other_task() -> None:
    assert task_instance_key("dag", "run", "task", -1) == task_instance_key("dag", "run", "task", -1)
    assert task_instance_key("dag", "run", "task", -1) != task_instance_key("dag", "run", "task", 1)
    assert task_instance_key("a", "bc") != task_instance_key("ab", "c")


@pytest.fixture
def connection(kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch) -> str:
    extra = {"bootstrap.servers": kafka.bootstrap_servers}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_JOBS", json.dumps({"conn_type": "kafka", "extra": extra}))
    return "kafka_jobs"
