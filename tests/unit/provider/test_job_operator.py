"""Waiting for a run in a task: the limit of its time while deferred, a run that was replaced, kills."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    TaskDeferralError,
    TaskDeferralTimeout,
    TaskDeferred,
)
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from support.outlet_events import OutletEvents
from wasmline import control, kafka
from wasmline.control import StoppedBy
from wasmline.errors import JobFailed, JobNotFound
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka import KafkaConfig
from wasmline_provider import run_wait
from wasmline_provider.asset_uris import topic_asset
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.job_client import JobRun, SilentRun
from wasmline_provider.operators.stream import SparkStreamOperator
from wasmline_provider.run_monitor import RunEnd
from wasmline_provider.task_instance_state import UNFINISHED_STATES
from wasmline_provider.triggers import job as job_trigger
from wasmline_provider.triggers.job import UNKNOWN_CONNECTION, JobTrigger

RUN = {"job": "j", "run": "r", "log": "driver.log"}

SETTINGS = {"bootstrap.servers": "nowhere:1"}

BOUNDED: dict[str, Any] = {"trigger_interval": None}


def stream(**options: Any) -> SparkStreamOperator:
    arguments = {"trigger_interval": "1 second", "deferrable": True, **options}
    return SparkStreamOperator(task_id="t", job="j", transform="d", storage="/s", **arguments)


def context(began: datetime | None = None, store: dict[str, Any] | None = None) -> Any:
    states = None if store is None else SimpleNamespace(get=store.get, set=store.__setitem__)
    ti = SimpleNamespace(**vars(TASK), start_date=began or datetime.now(UTC))
    return {"ti": ti, "task_state_store": states}


Stops = list[tuple[str, StoppedBy]]


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Stops:
    """The stops that are requested, by their runs."""
    requested: Stops = []

    def stop_run(settings: dict[str, Any], run: JobRun, log: object, *, by: StoppedBy) -> None:
        assert settings == SETTINGS
        requested.append((run.run, by))

    monkeypatch.setattr(run_wait, "stop_run", stop_run)
    monkeypatch.setattr(KafkaHook, "get_settings", lambda self: SETTINGS)
    return requested


def deferred(operator: SparkStreamOperator, monkeypatch: pytest.MonkeyPatch, began: datetime) -> TaskDeferred:
    monkeypatch.setattr(SparkStreamOperator, "submit_job", lambda self, context: RUN)
    with pytest.raises(TaskDeferred) as raised:
        operator._execute_deferred(context(began, {}), None)
    return raised.value


def test_a_deferred_task_waits_for_what_is_left_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = stream(execution_timeout=timedelta(hours=1))
    timeout = deferred(operator, monkeypatch, datetime.now(UTC) - timedelta(minutes=50)).timeout
    assert isinstance(timeout, timedelta)
    assert timedelta(minutes=9) < timeout <= timedelta(minutes=10)
    assert deferred(operator, monkeypatch, datetime.now(UTC) - timedelta(hours=2)).timeout == timedelta(0)


def test_a_task_without_a_limit_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert deferred(stream(), monkeypatch, datetime.now(UTC)).timeout is None


def test_a_task_whose_time_is_over_stops_its_run_and_fails_with_airflow_s_error(
    stops: Stops,
) -> None:
    error = {"error": TriggerFailureReason.TRIGGER_TIMEOUT}
    with pytest.raises(TaskDeferralTimeout):
        stream().resume_execution(TRIGGER_FAIL_REPR, error, context(store={"wasmline_run": RUN}))
    assert stops == [("r", "system")]


def test_a_trigger_that_failed_leaves_the_run_alone(stops: Stops) -> None:
    error = {"error": TriggerFailureReason.TRIGGER_FAILURE}
    with pytest.raises(TaskDeferralError):
        stream().resume_execution(TRIGGER_FAIL_REPR, error, context(store={"wasmline_run": RUN}))
    assert stops == []


@pytest.mark.parametrize("state", ["lost", "replaced"])
def test_what_ends_without_a_report_resumes_without_a_broker(state: str) -> None:
    event = {**RUN, "state": state, "message": "why", "replaced_by": "newer"}
    with pytest.raises(JobFailed, match="why") as failed:
        stream(**BOUNDED).execute_complete({}, event)
    assert failed.value.report == {"job": "j", "run": "r", "state": state}


def test_a_continuous_stream_that_a_newer_run_replaced_succeeds_with_its_name() -> None:
    event = {**RUN, "state": "replaced", "message": "why", "replaced_by": "newer"}
    result = {"state": "replaced", "job": "j", "run": "r", "replaced_by": "newer"}
    assert stream().execute_complete({}, event) == result


def test_the_result_of_a_deferred_run_says_how_it_was_ensured(monkeypatch: pytest.MonkeyPatch) -> None:
    report = JobReport.now("j", "r", JobState.STOPPED, "", result={"records_in": 7})

    @contextmanager
    def client(self: SparkStreamOperator) -> Iterator[Any]:
        yield SimpleNamespace(report=lambda run: report)

    monkeypatch.setattr(SparkStreamOperator, "_client", client)
    store = {"wasmline_run": {**RUN, "spec": "d", "action": "restarted", "changed": ["stream.shards"]}}
    result = stream().execute_complete(context(store=store), {**RUN, "state": "stopped"})
    assert (result["action"], result["changed"], result["records_in"]) == ("restarted", ["stream.shards"], 7)


def test_without_a_trigger_it_succeeds_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    end = RunEnd(state="replaced", message="why", replaced_by="newer")
    monkeypatch.setattr(run_wait, "await_end", lambda *arguments, **options: end)
    monkeypatch.setattr(KafkaHook, "get_settings", lambda self: SETTINGS)
    operator = stream()
    result = {"state": "replaced", "job": "j", "run": "r", "replaced_by": "newer"}
    assert operator.poll_until_complete(RUN, {}) == result
    assert operator.get_job_result(RUN, {}) == result


def test_a_lost_run_ends_with_the_end_of_its_driver_s_log(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    log.write_text("first\nthe last line\n")
    with pytest.raises(JobFailed, match=r"why\. It ends with:\nfirst\nthe last line"):
        stream().execute_complete({}, {**RUN, "log": str(log), "state": "lost", "message": "why"})


def test_a_connection_that_does_not_exist_fails_the_task_without_a_retry() -> None:
    with pytest.raises(AirflowFailException, match="not defined"):
        stream().execute_complete({}, {**RUN, "state": UNKNOWN_CONNECTION, "message": "not defined"})


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Lock]:
    """Airflow's connection, of one request at a time: SIGTERM comes while the first link is published."""
    lock, signals = threading.Lock(), iter([signal.SIGTERM])

    def publish(*arguments: Any, **options: Any) -> None:
        with lock:
            for each in signals:
                os.kill(os.getpid(), each)

    monkeypatch.setattr(BaseXCom, "set", publish)
    before = signal.getsignal(signal.SIGTERM)
    yield lock
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("options", [{}, {"deferrable": False}, {"wait_for_completion": False}])
@pytest.mark.parametrize("store", [{}, {"wasmline_run": RUN}], ids=["first", "retry"])
@pytest.mark.parametrize("state", ["running", "failed"])
def test_a_signal_while_a_link_is_published_ends_the_process_before_anything_is_ordered(
    monkeypatch: pytest.MonkeyPatch,
    stops: Stops,
    connection: threading.Lock,
    options: dict[str, Any],
    store: dict[str, Any],
    state: str,
) -> None:
    def get_task_states(**of: Any) -> dict[str, Any]:
        assert connection.acquire(timeout=60), "the thread that got the signal holds the connection"
        connection.release()
        return {TASK.run_id: {"t": state}}

    ordered: list[str] = []
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(get_task_states))
    monkeypatch.setattr(SparkStreamOperator, "_submit_job", lambda self, context: ordered.append("run"))
    monkeypatch.setattr(SparkStreamOperator, "get_job_status", lambda self, run, context: ordered.append("adopted"))
    operator = stream(**options)
    signal.signal(signal.SIGTERM, lambda number, frame: operator.on_kill())
    started = context(store=dict(store))
    started["ti"].stats_tags = {}
    with pytest.raises(AirflowException, match="this process is to end"):
        operator.execute(started)
    assert ordered == []
    waits = options.get("wait_for_completion", True)
    assert stops == ([("r", "user")] if store and state == "failed" and waits else [])


def test_a_process_that_is_to_end_orders_nothing_even_if_its_error_was_caught(
    monkeypatch: pytest.MonkeyPatch, stops: Stops
) -> None:
    ordered: list[str] = []
    monkeypatch.setattr(SparkStreamOperator, "_submit_job", lambda self, context: ordered.append("run"))
    operator = stream()
    operator._starting = True
    with suppress(AirflowException):
        operator.on_kill()
    with pytest.raises(AirflowException, match="this process is to end"):
        operator.submit_job(context())
    assert ordered == []


def test_a_process_that_is_killed_while_it_submits_ends_before_a_run_is_started(
    monkeypatch: pytest.MonkeyPatch, stops: Stops
) -> None:
    operator = stream()
    monkeypatch.setattr(SparkStreamOperator, "submit_job", lambda self, context: self.on_kill())
    with pytest.raises(AirflowException, match="while it starts or adopts a run of job j"):
        operator.execute(context(datetime.now(UTC), {}))
    assert stops == []


@pytest.mark.parametrize("state", ["failed", "running"])
def test_a_kill_while_the_driver_is_being_started_counts_once_it_has_been(
    monkeypatch: pytest.MonkeyPatch, stops: Stops, state: str
) -> None:
    def starting(operator: SparkStreamOperator, context: Any) -> dict[str, str]:
        operator._starts_driver, operator._running = True, RUN
        operator.on_kill()
        assert stops == []
        operator._starts_driver = False
        return RUN

    in_airflow(monkeypatch, {"t": state})
    monkeypatch.setattr(SparkStreamOperator, "_submit_job", starting)
    with pytest.raises(AirflowException):
        stream().execute(context(datetime.now(UTC), {}))
    assert stops == ([("r", "user")] if state == "failed" else [])


def test_a_kill_of_a_task_that_waits_for_no_stream_ends_its_process_and_stops_no_run(
    monkeypatch: pytest.MonkeyPatch, stops: Stops
) -> None:
    def killed(operator: SparkStreamOperator, context: Any) -> None:
        operator._running = RUN
        operator.on_kill()

    in_airflow(monkeypatch, {"t": "failed"})
    monkeypatch.setattr(SparkStreamOperator, "_submit_job", killed)
    with pytest.raises(AirflowException, match="while it starts or adopts"):
        stream(wait_for_completion=False).execute(context(datetime.now(UTC), {}))
    assert stops == []


@pytest.mark.parametrize("state", ["failed", "running"])
def test_a_kill_before_a_run_is_adopted_is_one_of_the_run_of_an_earlier_try(
    monkeypatch: pytest.MonkeyPatch, stops: Stops, state: str
) -> None:
    in_airflow(monkeypatch, {"t": state})
    monkeypatch.setattr(SparkStreamOperator, "get_job_status", lambda self, run, context: self.on_kill())
    with pytest.raises(AirflowException):
        stream().execute(context(datetime.now(UTC), {"wasmline_run": RUN}))
    assert stops == ([("r", "user")] if state == "failed" else [])


def test_a_task_that_was_ended_while_it_deferred_stops_its_run(monkeypatch: pytest.MonkeyPatch, stops: Stops) -> None:
    in_airflow(monkeypatch, {"t": "failed"})
    deferred(killed(), monkeypatch, datetime.now(UTC))
    assert stops == [("r", "user")]


def test_a_kill_is_a_user_s_stop_and_the_end_of_the_time_the_system_s(stops: Stops) -> None:
    operator = stream()
    operator.on_kill()
    assert stops == [], "no run was ordered yet"
    operator._running = RUN
    operator.on_kill()
    try:
        raise AirflowTaskTimeout
    except AirflowTaskTimeout:
        operator.on_kill()
    assert stops == [("r", "user"), ("r", "system")]


TASK = SimpleNamespace(dag_id="d", run_id="run", task_id="t", map_index=-1, log_url="http://airflow/log")


def in_airflow(monkeypatch: pytest.MonkeyPatch, states: dict[str, str | None] | Exception, task: Any = TASK) -> None:
    """Let Airflow answer that the task instances of the DAG run have these states, or fail."""

    def get_task_states(*, dag_id: str, task_ids: list[str], run_ids: list[str], map_index: int) -> dict[str, Any]:
        assert (dag_id, task_ids, run_ids, map_index) == (task.dag_id, [task.task_id], [task.run_id], task.map_index)
        if isinstance(states, Exception):
            raise states
        return {task.run_id: states} if states else {}

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(get_task_states))


def killed(task: Any = TASK) -> SparkStreamOperator:
    operator = stream()
    operator._task, operator._running = task, RUN
    return operator


@pytest.mark.parametrize(
    ("state", "by"),
    [
        *((each, "user") for each in ("failed", "success", "removed")),
        *((each, "system") for each in ("skipped", "restarting")),
    ],
)
def test_a_kill_stops_the_run_of_a_task_that_airflow_has_ended(
    monkeypatch: pytest.MonkeyPatch, stops: Stops, state: str, by: StoppedBy
) -> None:
    in_airflow(monkeypatch, {"t": state})
    killed().on_kill()
    assert stops == [("r", by)]


@pytest.mark.parametrize(
    "states",
    [
        *({"t": str(each)} for each in sorted(UNFINISHED_STATES)),
        {"t": None},  # cleared
        {},  # deleted, with its DAG run or by `airflow db clean`
        ConnectionError("no API server"),
    ],
    ids=str,
)
def test_a_process_that_is_told_to_end_ends_and_leaves_the_run_alone(
    monkeypatch: pytest.MonkeyPatch, stops: Stops, states: dict[str, str | None] | Exception
) -> None:
    in_airflow(monkeypatch, states)
    operator = killed()
    with pytest.raises(AirflowException, match=r"nobody has ended the task.*: job j, run r, goes on.* wasmline stop j"):
        operator.on_kill()
    operator.on_kill()  # once more, while the task ends
    assert stops == []


def test_a_signal_that_comes_after_the_end_of_the_run_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, stops: Stops
) -> None:
    in_airflow(monkeypatch, {"t": "success"})
    monkeypatch.setattr(run_wait, "await_end", lambda *arguments, **options: None)
    monkeypatch.setattr(SparkStreamOperator, "get_job_result", lambda *arguments: {})
    operator = killed()
    operator.poll_until_complete(RUN, {})
    operator.on_kill()
    assert stops == []


def test_a_task_that_has_deferred_leaves_its_run_to_the_trigger(monkeypatch: pytest.MonkeyPatch, stops: Stops) -> None:
    operator = killed()
    for state in ("running", "deferred"):
        in_airflow(monkeypatch, {"t": state})
        deferred(operator, monkeypatch, datetime.now(UTC))
        operator.on_kill()
    assert stops == []


def test_a_mapped_task_is_judged_by_its_own_state(monkeypatch: pytest.MonkeyPatch, stops: Stops) -> None:
    task = SimpleNamespace(**{**vars(TASK), "map_index": 3})
    in_airflow(monkeypatch, {"t_3": "failed", "t": "running"}, task)
    killed(task).on_kill()
    assert stops == [("r", "user")]


@pytest.mark.parametrize(
    "answer", [{"t": "deferred"}, {"t": "scheduled"}, {"t": None}, {}, ConnectionError("no API server")], ids=str
)
def test_a_trigger_whose_task_nobody_has_ended_leaves_the_run_alone(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, str | None] | Exception
) -> None:
    asked: list[KafkaHook] = []
    trigger = JobTrigger(job="j", run="r", log="driver.log")
    trigger.task_instance = cast(Any, TASK)
    monkeypatch.setattr(KafkaHook, "aget_settings", lambda self: asked.append(self))
    in_airflow(monkeypatch, answer)
    asyncio.run(trigger.on_kill())
    assert asked == [], "no connection, no stop"


def test_kills_that_wait_for_airflow_s_answer_leave_asyncio_s_threads_to_other_triggers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()

    def blocked(task: object) -> str:
        answers.wait(60)
        return "deferred"

    monkeypatch.setattr(job_trigger, "read_task_instance_state", blocked)
    triggers = [JobTrigger(job="j", run=f"r-{number}", log="driver.log") for number in range(100)]
    for each in triggers:
        each.task_instance = cast(Any, TASK)

    async def scene() -> None:
        kills = [asyncio.create_task(each.on_kill()) for each in triggers]
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(asyncio.to_thread(lambda: None), 30)
        finally:
            answers.set()
            await asyncio.gather(*kills)

    asyncio.run(scene())


class Broken:
    """A cluster whose requests fail."""

    is_withdrawn = True

    @property
    def stops(self) -> "Broken":
        return self

    def request(self, job: str, run: str, tell: Any, *, by: StoppedBy) -> "Broken":
        tell(OSError("no broker answered"))
        return self

    def cancel(self) -> bool:
        return self.is_withdrawn


def test_a_stop_that_cannot_be_requested_is_an_error_that_names_the_command(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_wait, "cluster_clients", lambda settings: Broken())
    run_wait.stop_run(SETTINGS, JobRun(**RUN), logging.getLogger("task"), by="user", timeout_s=0.05)
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "the stop of job j, run r, was NOT requested (OSError: no broker answered)" in record.getMessage()
    assert record.getMessage().endswith("wasmline stop j")


def test_a_stop_that_got_no_answer_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Broken()
    cluster.is_withdrawn = False
    monkeypatch.setattr(run_wait, "cluster_clients", lambda settings: cluster)
    run_wait.stop_run(SETTINGS, JobRun(**RUN), logging.getLogger("task"), by="user", timeout_s=0.05)
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "the stop of job j, run r, got no answer (OSError: no broker answered), and may still be written" in (
        record.getMessage()
    )


@pytest.mark.parametrize(
    ("try_number", "max_tries", "earlier"),
    [(1, 2, ""), (2, 2, "r"), (3, 2, "r"), (4, 5, ""), (5, 5, "r")],
    ids=["first", "retry", "last retry", "first after it was cleared in its third try", "retry after that"],
)
def test_only_a_retry_has_an_earlier_run(try_number: int, max_tries: int, earlier: str) -> None:
    waiting = context(store={SparkStreamOperator.external_id_key: RUN})
    waiting["ti"].try_number, waiting["ti"].max_tries = try_number, max_tries
    assert stream(retries=2)._earlier_run(waiting) == earlier


def test_a_run_whose_report_newer_runs_have_replaced_ends_as_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def client(self: SparkStreamOperator) -> Iterator[SimpleNamespace]:
        def report(run: JobRun) -> None:
            raise JobNotFound("no report is left", job=run.job)

        yield SimpleNamespace(report=report)

    monkeypatch.setattr(SparkStreamOperator, "_client", client)
    assert stream().get_job_result(RUN, context())["state"] == "replaced"
    with pytest.raises(JobFailed, match="no report is left"):
        stream(**BOUNDED).get_job_result(RUN, context())


@pytest.mark.parametrize(
    ("payload", "silent"),
    [
        ({"jobs": [{"job": "j", "run": "r", "state": "lost", "updated_ms": 5}]}, SilentRun(run="r", updated_ms=5)),
        ({"jobs": [{"job": "j", "run": "r", "state": "failed", "updated_ms": 5}]}, None),
        ({"jobs": [{"job": "another", "run": "r", "state": "lost", "updated_ms": 5}]}, None),
        ({"jobs": [{"job": "j", "run": "r", "state": "lost"}]}, None),  # of an earlier release
        ({"jobs": ["a"]}, None),
        ({"reasons": []}, None),
        (None, None),
    ],
)
def test_a_run_of_the_dag_for_an_event_knows_which_run_was_silent(payload: Any, silent: SilentRun | None) -> None:
    events = {"streams.dead": [SimpleNamespace(extra={"payload": payload})]}
    started: Any = {**context(), "triggering_asset_events": events}
    assert stream()._silent_run(started) == silent


def test_the_event_of_a_stream_has_its_counts_and_where_its_topics_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    report = JobReport.now("j", "r", JobState.SUCCEEDED, result={"digest": "d", "records_in": 12, "batches": [{}]})

    @contextmanager
    def client(self: SparkStreamOperator) -> Iterator[Any]:
        yield SimpleNamespace(report=lambda run: report)

    statuses = [SimpleNamespace(partition=0, offset=5), SimpleNamespace(partition=1, offset=7)]
    monkeypatch.setattr(SparkStreamOperator, "_client", client)
    monkeypatch.setattr(KafkaHook, "get_conn", lambda self: KafkaConfig(SETTINGS))
    monkeypatch.setattr(
        control, "StatusTopic", lambda config: SimpleNamespace(of=lambda job: statuses, close=lambda: None)
    )
    monkeypatch.setattr(kafka, "Topics", lambda config: SimpleNamespace(end_offsets={"out": {0: 12}}.__getitem__))
    outlet, events = topic_asset(server="kafka:9092", topic="out"), OutletEvents()
    result = stream(**BOUNDED, outlets=[outlet]).get_job_result(RUN, cast(Any, {"outlet_events": events}))
    assert result == {"job": "j", "run": "r", "state": "succeeded", "digest": "d", "records_in": 12, "batches": 1}
    assert events[outlet].extra == {**result, "read_offsets": {"0": 5, "1": 7}, "end_offsets": {"0": 12}}


def test_a_report_makes_no_xcoms_of_other_names_and_cannot_say_that_it_is_another_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foreign = {"_link_SparkUiLink": "javascript:alert(1)", "return_value": 1, "skipped": 1, "job": "another", "run": ""}
    report = JobReport.now("j", "r", JobState.SUCCEEDED, result={**foreign, "state": "x", "records_in": 12})

    @contextmanager
    def client(self: SparkStreamOperator) -> Iterator[Any]:
        yield SimpleNamespace(report=lambda run: report)

    monkeypatch.setattr(SparkStreamOperator, "_client", client)
    result = stream().get_job_result(RUN, context())
    assert result == {"job": "j", "run": "r", "state": "succeeded", "records_in": 12, "batches": 0}
