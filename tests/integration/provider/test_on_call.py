"""The forms of whoever is on call, and a deployment that is rolled back by itself, on a real broker."""

from __future__ import annotations

import itertools
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from support.streams.identity_transform import deploy_identity
from wasmline.control import (
    ChangeCause,
    ClaimWriter,
    DeploymentTopic,
    DriverClaim,
    HistoryTopic,
    JobTopic,
    StatusTopic,
    control_topics,
    delete_job,
    deploy,
    plan_deployment_rollback,
    read_deployment_health,
    read_job_events,
    roll_back_deployment,
)
from wasmline.errors import BrokerUnavailable, JobBusy, JobNotFound
from wasmline.job_offsets.progress_change import read_progress
from wasmline.job_specs import FunctionSpec, JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import RecordWriter, Topics, produce_all
from wasmline.partition_status import PartitionStatus
from wasmline.registry import ArtifactMetadata, FilesystemRegistry
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka
from wasmline_provider import form_choices
from wasmline_provider.form_choices import FormChoices
from wasmline_provider.operators.deploy import WasmDeployOperator, WasmRollbackOperator
from wasmline_provider.operators.job_actions import PauseJobOperator, SetProgressOperator, StopJobOperator
from wasmline_provider.sensors.deployment import WasmDeploymentSensor

CAUSE = ChangeCause(reason="it is slow", by="ada")

Load = Callable[[str], ModuleType]
RunDag = Callable[..., Any]

PROJECT = Path(__file__).parents[3] / "wasm_modules" / "delivery_distance"


class Job:
    """A job of a function on a topic of two partitions with 10 records in all, whose driver is this test."""

    def __init__(self, kafka: RunningKafka) -> None:
        self.config = kafka.config
        self.topic = kafka.topic(partitions=2)
        produce_all(kafka.config, self.topic, [(b"k", b"v", None, 1_000 * number) for number in range(10)])
        stream = StreamSpec(function=FunctionSpec(function="m:f", topic=self.topic), mode="parallel")
        self.spec = JobSpec(job=f"job-{uuid.uuid4().hex[:8]}", run="run-1", storage="/s", stream=stream)
        self.jobs = JobTopic(kafka.config)
        self.jobs.submit(self.spec)

    def report(self, state: JobState) -> None:
        self.jobs.write_report(JobReport.now(self.spec.job, "run-1", state))

    @contextmanager
    def driver(self) -> Iterator[None]:
        """A driver that reports each second, and then stops."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(1):
                self.report(JobState.RUNNING)

        self.report(JobState.RUNNING)
        with ThreadPoolExecutor(1) as thread:
            running = thread.submit(run)
            try:
                yield
            finally:
                ended.set()
                running.result()
                self.report(JobState.STOPPED)


@pytest.fixture
def job(connected: RunningKafka) -> Iterator[Job]:
    made = Job(connected)
    with closing(made.jobs):
        yield made


def test_an_orphan_is_stopped_and_deleted_from_forms_that_suggest_it(load: Load, run_dag: RunDag, job: Job) -> None:
    forms = load("on_call")
    assert job.spec.job in forms.JOB.schema["examples"]
    dags = _dags(forms)
    with job.driver():
        assert run_dag(dags["delete_job"], job=job.spec.job, reason="not needed").state == "failed"  # it is live
    assert run_dag(dags["stop_job"], job=job.spec.job, reason="an orphan").state == "success"
    assert job.jobs.order(job.spec.job).is_stopped_by_user
    assert run_dag(dags["delete_job"], job=job.spec.job, reason="not needed").state == "success"
    with pytest.raises(JobNotFound):
        job.jobs.order(job.spec.job)
    events = read_job_events(job.config, job.spec.job)
    found = [(each.action, each.cause.reason, each.cause.by) for each in events]
    assert found == [("stop", "an orphan", "dag_test"), ("delete", "not needed", "dag_test")]


def test_a_stop_that_is_cleared_leaves_a_run_alone_that_was_started_since(job: Job) -> None:
    job.report(JobState.STOPPED)
    context = {"dag_run": SimpleNamespace(dag_id="stop_job"), "run_id": "r"}
    task = StopJobOperator(task_id="stop", job=job.spec.job, reason="an orphan", by="ada")
    ended = {"job": job.spec.job, "run": "run-1", "state": "stopped"}
    assert [task.execute(context), task.execute(context)] == [ended, ended]
    job.jobs.submit(JobSpec(job=job.spec.job, run="run-2", storage="/s", stream=job.spec.stream))
    assert task.execute(context) == {**ended, "state": "replaced"}
    assert job.jobs.order(job.spec.job).wanted == "running"


def test_progress_is_set_from_the_form_once_also_if_the_run_is_cleared(load: Load, run_dag: RunDag, job: Job) -> None:
    dag = _dags(load("on_call"))["set_progress"]
    with job.driver():
        assert run_dag(dag, job=job.spec.job, to="end", reason="skip them").state == "failed"
    assert run_dag(dag, job=job.spec.job, to="end", reason="skip them").state == "success"
    ends = Topics(job.config).end_offsets(job.topic)
    assert read_progress(job.config, job.spec.job).offsets == ends
    [full] = [each for each, end in ends.items() if end]
    run = run_dag(dag, job=job.spec.job, to="-3", partitions=[full], reason="three again")
    assert run.state == "success"
    context = {"dag_run": SimpleNamespace(dag_id=dag.dag_id), "run_id": run.run_id}
    task = SetProgressOperator(task_id="set_progress", job=job.spec.job, to="-3", partitions=f"[{full}]", reason="x")
    assert task.execute(context)["offsets"][str(full)] == ends[full] - 3
    assert read_progress(job.config, job.spec.job).offsets == ends | {full: ends[full] - 3}
    texts: list[tuple[Any, str]] = [("yesterday", "is neither"), ("99", "cannot continue at 99"), (3, "must be text")]
    for to, text in texts:
        task = SetProgressOperator(task_id="set_progress", job=job.spec.job, to="{{ params.to }}", reason="x")
        task.to = to  # as Airflow renders it
        with pytest.raises(AirflowFailException, match=text):
            task.execute({**context, "run_id": str(to)})


@pytest.mark.parametrize("mode", ["parallel", "microbatch"])
@pytest.mark.parametrize("moment", ["before it is in force", "after it is in force"])
def test_a_relative_progress_whose_try_was_killed_is_set_once(
    job: Job, mode: Any, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = job.spec.stream
    if mode == "microbatch":
        transform = deploy_identity(job.config)
        job.topic, stream = transform.input_topic, StreamSpec(transform=transform.name)
        produce_all(job.config, job.topic, [(b"k", b"v", None, 1_000)] * 10)
    spec = replace(job.spec, run="run-2", stream=stream)
    job.jobs.submit(spec)
    job.jobs.write_report(JobReport.now(spec.job, "run-2", JobState.STOPPED))
    claim, claims = ClaimWriter.claim, itertools.count()

    def killed(writer: ClaimWriter, *arguments: Any, **options: Any) -> None:
        number = next(claims)
        if moment == "after it is in force" and number == 0:
            claim(writer, *arguments, **options)
        raise BrokerUnavailable("killed", bootstrap_servers="b:1")

    def task(to: str) -> Any:
        context = {"dag_run": SimpleNamespace(dag_id="set_progress"), "run_id": to}
        return SetProgressOperator(task_id="set_progress", job=spec.job, to=to, reason="x").execute(context)

    ends = Topics(job.config).end_offsets(job.topic)
    task("end")
    with monkeypatch.context() as patch:
        patch.setattr(ClaimWriter, "claim", killed)
        with pytest.raises(BrokerUnavailable):
            task("-2")
    [full] = [each for each, end in ends.items() if end]
    wanted = {str(each): max(0, end - 2) for each, end in ends.items()}
    assert [task("-2")["offsets"], task("-2")["offsets"]] == [wanted, wanted]
    assert read_progress(job.config, spec.job).offsets[full] == ends[full] - 2


def test_a_name_with_a_slash_deletes_no_claim(load: Load, run_dag: RunDag, job: Job) -> None:
    claim = DriverClaim(run="run-1", mode="parallel", driver="d", checkpoint="c", batch_id=3, deployment=None)
    with closing(ClaimWriter(job.config, job.spec.job, "d")) as claims:
        claims.take_over(lambda _: claim)
    dag = _dags(load("on_call"))["delete_job"]
    assert run_dag(dag, job=f"{job.spec.job}/batch", reason="a slip").state == "failed"
    assert job.jobs.last_claim(job.spec.job) == claim


def test_a_job_with_a_driver_is_not_deleted_where_its_order_cannot_be_read(job: Job) -> None:
    with job.driver(), closing(RecordWriter(job.config)) as writer:
        writer.write(control_topics.JOBS, [(job.spec.job.encode(), b'{"spec_version": 99}', None, None)])
        with pytest.raises(JobBusy, match="is live"):
            delete_job(job.config, job.spec.job)
    assert delete_job(job.config, job.spec.job) == ""


def test_leases_are_withdrawn_from_the_form(load: Load, run_dag: RunDag, job: Job) -> None:
    dag = _dags(load("on_call"))["withdraw_leases"]
    assert run_dag(dag, job=job.spec.job, reason="stuck").state == "failed"
    claim = DriverClaim(run="run-1", mode="parallel", driver="d", checkpoint="c", batch_id=3, deployment=None)
    with closing(ClaimWriter(job.config, job.spec.job, "d")) as claims:
        claims.take_over(lambda _: claim)
    with job.driver():
        assert run_dag(dag, job=job.spec.job, reason="stuck").state == "success"
    withdrawal = job.jobs.last_withdrawal(job.spec.job)
    assert withdrawal is not None
    assert (withdrawal.driver, withdrawal.epoch) == ("d", 3)


def test_a_function_is_paused_and_resumed_from_forms_once(load: Load, run_dag: RunDag, job: Job) -> None:
    forms = _dags(load("on_call"))
    run = run_dag(forms["pause_job"], job=job.spec.job, reason="lunch")
    assert run.state == "success"
    assert job.jobs.order(job.spec.job).pause_reason == "lunch"
    assert run_dag(forms["resume_job"], job=job.spec.job, reason="done").state == "success"
    context = {"dag_run": SimpleNamespace(dag_id="pause_job"), "run_id": run.run_id}
    task = PauseJobOperator(task_id="pause", job=job.spec.job, reason="lunch", by="ada")
    assert task.execute(context) == {"job": job.spec.job, "paused": False}  # the run is cleared


def test_a_transform_is_paused_and_resumed_from_forms(load: Load, run_dag: RunDag, connected: RunningKafka) -> None:
    name = deploy_identity(connected.config).name
    forms = load("on_call")
    assert name in forms.TRANSFORM.schema["examples"]
    for action, state in (("pause", "paused"), ("resume", "running")):
        assert run_dag(_dags(forms)[f"{action}_transform"], transform=name, reason=f"to {action}").state == "success"
        with closing(DeploymentTopic(connected.config)) as deployments:
            assert deployments.get(name).state == state
    [generation] = HistoryTopic(connected.config).generations(name)
    causes = [(each.action, each.cause.reason, each.cause.by) for each in generation.events[1:]]
    assert causes == [("pause", "to pause", "dag_test"), ("resume", "to resume", "dag_test")]


def test_a_form_without_an_answer_of_its_cluster_has_no_suggestions(
    connected: RunningKafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    name = deploy_identity(connected.config).name
    assert name in form_choices.read_form_choices().transforms
    monkeypatch.setattr(form_choices, "READ_TIMEOUT_S", 0.0)
    assert form_choices.read_form_choices() == FormChoices()
    assert "no answer in 0 s" in caplog.text
    assert form_choices.read_form_choices("no_such_connection") == FormChoices()
    assert "no_such_connection" in caplog.text
    monkeypatch.undo()
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "stop_job")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", "stop")
    assert form_choices.read_form_choices("no_such_connection") == FormChoices()


# -- a deployment that is watched --------------------------------------------------------------------------------------


class Project:
    """A copy of the C++ example under a name and on topics of its own."""

    def __init__(self, kafka: RunningKafka, folder: Path) -> None:
        self.config = kafka.config
        self.folder = shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("build"))
        self.name = f"distance-{uuid.uuid4().hex[:8]}"
        names = {topic: kafka.topic() for topic in ("deliveries.raw", "deliveries.features.dlq", "deliveries.features")}
        for file in (folder / "transform.yaml", folder / "samples" / "expected.jsonl"):
            text = file.read_text()
            for known, name in ({"delivery-distance": self.name} | names).items():
                text = text.replace(known, name)
            file.write_text(text)

    def report(self, generation: int, records: int, dead_letters: int) -> None:
        """Report the counts of a generation as a job that runs it."""
        status = PartitionStatus(
            job=f"{self.name}-job", transform=self.name, topic="in", partition=0, digest="d", generation=generation,
            state="running", offset=records, lag=0, rate=0, since_offset=0, updated_ms=0, generation_records=records,
            generation_dead_letters=dead_letters,
        )  # fmt: skip
        with closing(StatusTopic(self.config)) as topic:
            topic.write([status])

    def versions(self) -> list[tuple[str, str, int | None]]:
        """Return the version, state and restored generation of each generation."""
        found = HistoryTopic(self.config).generations(self.name)
        return [
            (each.deployment.spec.version, each.deployment.state, each.events[0].restored_generation) for each in found
        ]


def test_a_deployment_is_watched_and_rolled_back_by_itself(
    load: Load, run_dag: RunDag, connected: RunningKafka, tmp_path: Path
) -> None:
    project = Project(connected, tmp_path / "project")
    dag = load("deploy_transform").dag

    def release(version: str, minutes: float = 0) -> Any:
        options = {"max_dead_letter_share": 0.05, "minutes": minutes, "reason": f"release {version}"}
        return run_dag(dag, project=str(project.folder), version=version, **options).state

    for task in dag.tasks:
        task.retries = 0
    project.report(1, 1_000, 51)
    assert release("1.0.0", minutes=60) == "failed"
    assert project.versions() == [("1.0.0", "paused", None)]
    assert release("1.0.0", minutes=60) == "success"  # it is resumed as it is, and not watched
    project.report(2, 1_000, 50)
    assert release("1.0.1") == "success"
    project.report(3, 99, 99)
    assert release("1.0.2") == "failed"
    assert project.versions()[1:] == [("1.0.1", "running", None), ("1.0.2", "running", None), ("1.0.1", "running", 2)]
    *_, last = HistoryTopic(connected.config).generations(project.name)
    assert last.events[0].cause.reason == "deploy_transform: 99 of 99 records became dead letters, more than 5.0%"
    assert run_dag(dag, project=str(tmp_path), reason="no such project").state == "failed"
    assert len(project.versions()) == 4


def test_a_deploy_that_is_tried_again_leaves_what_whoever_is_on_call_did_since(
    connected: RunningKafka, tmp_path: Path
) -> None:
    name, registry = f"t-{uuid.uuid4().hex[:8]}", str(tmp_path)
    declared = {"input-topic": connected.topic(), "output-topics": [connected.topic()]}
    for version in ("1.0.0", "1.0.1"):
        FilesystemRegistry(registry).publish(name, version, guest(), metadata=ArtifactMetadata(transform=declared))

    def deploy_version(version: str, run: str, **options: Any) -> Any:
        context: Any = {"dag_run": SimpleNamespace(dag_id="deploy_transform"), "run_id": run, "outlet_events": {}}
        task = WasmDeployOperator(task_id="deploy", name=name, version=version, registry=registry, by="ada", **options)
        return task.execute(context)

    assert deploy_version("1.0.0", "first")["generation"] == 1
    assert deploy_version("1.0.1", "second")["generation"] == 2
    with closing(DeploymentTopic(connected.config)) as deployments:
        deployments.pause(name, "wrong outputs")
        again = deploy_version("1.0.1", "second")
        assert (again["generation"], again["state"], again["is_new"]) == (2, "paused", True)
    roll_back_deployment(connected.config, plan_deployment_rollback(connected.config, name), cause=CAUSE)
    with pytest.raises(AirflowFailException, match="in generation 2, and generation 3 is current"):
        deploy_version("1.0.1", "second")
    with pytest.raises(AirflowFailException, match="Conflict"):
        deploy_version("1.0.1", "third", expected_generation=2)
    assert deploy_version("1.0.1", "fourth")["generation"] == 4


def test_a_generation_that_cannot_be_rolled_back_is_paused_unless_another_is_current(connected: RunningKafka) -> None:
    first = deploy_identity(connected.config)
    context: Any = {"dag_run": SimpleNamespace(dag_id="deploy_transform"), "run_id": "r"}

    def roll_back(expected: str) -> Any:
        task = WasmRollbackOperator(
            task_id="roll_back", name=first.name, reason="no", expected_generation=expected, pause_if_refused=True
        )
        return task.execute(context)

    assert (roll_back("1")["generation"], roll_back("1")["state"]) == (1, "paused")
    assert read_deployment_health(connected.config, first.name).paused_by == ""
    with closing(DeploymentTopic(connected.config)) as deployments:
        deployments.pause(first.name, "a look at it", by="ada")
        assert read_deployment_health(connected.config, first.name).paused_by == ""  # the fault was not resumed
        deploy(connected.config, replace(first, version="2.0.0"), guest())
        assert roll_back("2")["version"] == "1.0.0"
        deploy(connected.config, replace(first, version="4.0.0"), guest())
        assert (roll_back("4")["generation"], roll_back("4")["version"]) == (5, "1.0.0")  # the run is cleared
        context["run_id"] = "late"
        with pytest.raises(AirflowFailException, match="generation 5, not 3"):
            roll_back("3")
        assert deployments.get(first.name).state == "running"


def test_a_watch_ends_at_a_fault_of_a_run_and_not_at_a_pause_of_a_user(
    connected: RunningKafka,
) -> None:
    name = deploy_identity(connected.config).name

    def watch(**options: Any) -> Any:
        arguments = {"generation": "1", "minutes": "60", "max_dead_letter_share": "0.1", **options}
        found = WasmDeploymentSensor(task_id="watch", name=name, **arguments).poke({})
        result: Any = found.xcom_value or {}
        return found.is_done, result.get("fault")

    assert watch() == (False, "")
    assert watch(minutes=0) == (True, "")
    with pytest.raises(AirflowSkipException, match="generation 1 of"):
        watch(generation=2)
    with closing(DeploymentTopic(connected.config)) as deployments:
        deployments.pause(name, "a holiday", by="ada")
        assert watch(minutes=0) == (False, None)
        deployments.resume(name)
        assert deployments.pause_generation(deployments.get(name), "too many failures", run="run-1")
    assert watch(fail_on_fault=False) == (True, "it is paused: too many failures")
    with pytest.raises(AirflowFailException, match=r"generation 1 of .* is at fault: it is paused: too many failures"):
        watch()


def _dags(forms: ModuleType) -> dict[str, Any]:
    """Return the DAGs of a file that has several."""
    from airflow.sdk import DAG

    return {each.dag_id: each for each in vars(forms).values() if isinstance(each, DAG)}
