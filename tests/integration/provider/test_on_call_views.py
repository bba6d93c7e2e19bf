"""The forms that show what is on a cluster, and the one that prunes its modules, on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from support.streams.identity_transform import deploy_identity
from wasmline import dead_letters
from wasmline.control import (
    ChangeCause,
    DeploymentTopic,
    JobTopic,
    StatusTopic,
    deploy,
    read_module_events,
    read_modules,
    stop_job,
)
from wasmline.digests import digest_of
from wasmline.errors import InvalidJob, InvalidRedrive, InvalidSpec
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import produce_all
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition
from wasmline_provider.operators.cluster_views import (
    ListDeadLettersOperator,
    ListJobsOperator,
    ShowDeadLetterOperator,
    ShowHistoryOperator,
    ShowLogsOperator,
    ShowProgressOperator,
)
from wasmline_provider.operators.modules import PruneModulesOperator

Show = Callable[..., Any]


@pytest.fixture
def show(load: Callable[[str], ModuleType], run_dag: Callable[..., Any], connected: RunningKafka) -> Show:
    """Trigger a form, and return the result of its task; None if the run failed."""

    def run(dag_id: str, *, file: str = "on_call_views", **params: Any) -> Any:
        dags = {each.dag_id: each for each in vars(load(file)).values() if isinstance(each, DAG)}
        (task,) = dags[dag_id].tasks
        done = run_dag(dags[dag_id], **params)
        return done.get_task_instances()[0].xcom_pull(task_ids=task.task_id) if done.state == "success" else None

    return run


def test_jobs_are_listed_with_the_states_of_their_runs(show: Show, connected: RunningKafka) -> None:
    transform = deploy_identity(connected.config).name
    spec = JobSpec(job=f"{transform}-job", run="run-1", storage="/s", stream=StreamSpec(transform=transform))
    with closing(JobTopic(connected.config)) as jobs:
        jobs.submit(spec)
        jobs.write_report(replace(JobReport.now(spec.job, "run-1", JobState.STOPPED), error="GuestTrap", message="no"))
    [found] = [each for each in show("list_jobs")["jobs"] if each["job"] == spec.job]
    assert found.pop("reported").endswith("Z")
    assert found == {
        "job": spec.job,
        "run": "run-1",
        "condition": "stopped",
        "wanted": "running",
        "mode": "microbatch",
        "delivery": "at_least_once",
        "work": f"transform {transform}",
        "message": "GuestTrap: no",
        "problem": "",
    }


def test_the_history_of_a_transform_or_a_job_is_shown(show: Show, connected: RunningKafka) -> None:
    spec = deploy_identity(connected.config)
    deploy(connected.config, replace(spec, version="2.0.0"), guest(), cause=ChangeCause(reason="faster", by="ada"))
    with closing(DeploymentTopic(connected.config)) as deployments:
        deployments.pause(spec.name, "a look at it", by="ada")
    changes = show("show_history", transform=spec.name)["changes"]
    found = [(each["generation"], each["state"], each["version"], each["action"], each["reason"]) for each in changes]
    assert found == [
        (1, "replaced", "1.0.0", "deploy", ""),
        (2, "paused", "2.0.0", "deploy", "faster"),
        (2, "paused", "2.0.0", "pause", "a look at it"),
    ]
    assert {each["generation"] for each in show("show_history", transform=spec.name, limit=1)["changes"]} == {2}
    assert show("show_history") is None
    assert show("show_history", transform=spec.name, job="j") is None
    assert show("show_history", transform=f"{spec.name}-x") is None

    job = JobSpec(job=f"{spec.name}-job", run="run-1", storage="/s", stream=StreamSpec(transform=spec.name))
    with closing(JobTopic(connected.config)) as jobs:
        jobs.submit(job)
        jobs.write_report(JobReport.now(job.job, "run-1", JobState.STOPPED))
    stop_job(connected.config, job.job, cause=ChangeCause(reason="a holiday", by="ada"), timeout_s=1)
    [change] = show("show_history", job=job.job)["changes"]
    assert change.pop("time").endswith("Z")
    assert change == {"job_run": "run-1", "action": "stop", "reason": "a holiday", "by": "ada", "run": ""}


def test_the_last_lines_of_guests_are_shown(show: Show, connected: RunningKafka) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with closing(StatusTopic(connected.config)) as topic:
        topic.write_logs(f"{name}-other", ["INFO not of this transform"])
        topic.write_logs(name, ["INFO one", "WARN two \x1b[31m", "INFO three"])
    lines = show("show_logs", transform=name, since="15m", limit=2)["lines"]
    assert [each["text"] for each in lines] == ["WARN two \\u001b[31m", "INFO three"]
    assert len(show("show_logs", transform=name)["lines"]) == 3
    assert show("show_logs", transform=name, since="2999-01-01T00:00:00Z") == {"lines": []}
    assert show("show_logs", transform=name, since="yesterday") is None


def test_dead_letters_are_counted_and_shown_whole(show: Show, connected: RunningKafka) -> None:
    topic = connected.topic()
    spec = replace(deploy_identity(connected.config), dead_letter_topic=topic, version="1.0.1")
    deploy(connected.config, spec, guest())
    place = dead_letters.coordinates(TopicPartition(spec.input_topic, 0), 7)
    origin = dead_letters.origin(transform=f"{spec.name}@1.0.0", digest=spec.digest)
    headers = [*dead_letters.failure(error="GuestTrap", reason="no"), *origin, *place]
    produce_all(connected.config, topic, [(b"k", value, headers, 1_000) for value in (b"a", b"\xff")])
    assert {"topic": topic, "used_by": [spec.name]} in show("list_dead_letters")["topics"]
    assert show("list_dead_letters", topic=topic)["counts"] == [
        {
            "transform": f"{spec.name}@1.0.0",
            "error": "GuestTrap",
            "source_topic": spec.input_topic,
            "dead_letters": 2,
            "pending": 2,
            "first": "1970-01-01T00:00:01Z",
            "last": "1970-01-01T00:00:01Z",
            "last_dead_letter": f"{topic}-0@1",
            "last_reason": "no",
        }
    ]
    letter = show("show_dead_letter", topic=topic, offset=1)
    assert (letter["dead_letter"], letter["state"], letter["key"]) == (f"{topic}-0@1", "pending", "k")
    assert (letter["value"], letter["source"]) == ({"base64": "/w=="}, f"{spec.input_topic}-0@7")
    assert tuple(letter) == ShowDeadLetterOperator.output_keys
    assert show("show_dead_letter", topic=topic, offset=2) is None


def test_the_progress_of_a_job_is_shown(show: Show, connected: RunningKafka) -> None:
    spec = deploy_identity(connected.config)
    produce_all(connected.config, spec.input_topic, [(b"k", b"v", None, 1_000)] * 3)
    job = JobSpec(job=f"{spec.name}-job", run="run-1", storage="/s", stream=StreamSpec(transform=spec.name))
    with closing(JobTopic(connected.config)) as jobs:
        jobs.submit(job)
    found = show("show_progress", job=job.job)
    assert tuple(found) == ShowProgressOperator.output_keys
    assert (found["topic"], found["mode"], len(found["partitions"])) == (spec.input_topic, "microbatch", 2)
    assert sum(each["end"] for each in found["partitions"]) == 3
    assert show("show_progress", job=f"{job.job}-x") is None


def test_modules_are_pruned_from_the_form(show: Show, connected: RunningKafka) -> None:
    spec = deploy_identity(connected.config)
    modules = [guest() + bytes([0, 5, 4, *uuid.uuid4().bytes[:2].hex().encode()]) for _ in range(2)]  # custom sections
    for number, wasm in enumerate(modules):
        deploy(connected.config, replace(spec, version=f"2.0.{number}", digest=digest_of(wasm)), wasm)
    first, last = (digest_of(wasm) for wasm in modules)
    assert show("prune_modules", file="on_call", reason="monthly") is not None
    assert {first, last} <= {each.digest for each in read_modules(connected.config).modules}
    done = show("prune_modules", file="on_call", keep_generations=1, reason="only the last")
    assert done["deleted"] >= 1
    assert done["size_bytes"] >= len(modules[0])
    found = {each.digest for each in read_modules(connected.config).modules}
    assert (first in found, last in found) == (False, True)
    event = read_module_events(connected.config)[-1]
    assert (event.cause.reason, event.cause.by) == ("only the last", "dag_test")


def test_arguments_without_templates_are_checked_when_the_dag_is_parsed() -> None:
    with pytest.raises(InvalidSpec, match="transform or a job"):
        ShowHistoryOperator(task_id="t")
    with pytest.raises(InvalidSpec, match="limit must be a whole number"):
        ShowLogsOperator(task_id="t", transform="x", limit=0)
    with pytest.raises(InvalidSpec, match="neither a time"):
        ShowLogsOperator(task_id="t", transform="x", since="yesterday")
    with pytest.raises(InvalidRedrive, match="topic"):
        ListDeadLettersOperator(task_id="t", topic="a b")
    with pytest.raises(InvalidRedrive, match="offset"):
        ShowDeadLetterOperator(task_id="t", topic="x", partition=0, offset=-1)
    with pytest.raises(InvalidJob):
        ShowProgressOperator(task_id="t", job="a b")
    with pytest.raises(InvalidSpec, match="keep_generations"):
        PruneModulesOperator(task_id="t", keep_generations=0, reason="x")


def test_a_template_that_renders_to_nothing_fails_at_once(connected: RunningKafka) -> None:
    task = ShowDeadLetterOperator(task_id="t", topic="{{ params.topic }}", partition="0", offset="{{ params.offset }}")
    task.topic, task.offset = "", "1"
    with pytest.raises(AirflowFailException, match="topic is ''"):
        task.execute({})
    assert "jobs" in ListJobsOperator(task_id="t").execute({})
