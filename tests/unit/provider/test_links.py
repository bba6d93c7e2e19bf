"""Links of a job's task: they lead somewhere while it is deferred, and a record cannot make them lead anywhere else."""

from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from airflow.api_fastapi.core_api.routes.public.extra_links import get_extra_links
from airflow.models.dagbag import DBDagBag
from airflow.sdk import DAG
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.execution_time import task_runner, xcom
from airflow.sdk.execution_time.comms import XComResult
from airflow.triggers.base import TriggerEvent
from airflow.utils.session import create_session

import wasmline_provider.links
from wasmline_provider import run_wait
from wasmline_provider.get_provider_info import get_provider_info
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.links import JOB_STATUS, SPARK_UI, WEB_URL, SparkUiLink
from wasmline_provider.operators.model import TrainModelOperator
from wasmline_provider.operators.stream import SparkStreamOperator
from wasmline_provider.run_monitor import RunEnd, RunEvent, SparkUi
from wasmline_provider.triggers import job as job_trigger
from wasmline_provider.triggers.job import JobTrigger

RUN = {"job": "j", "run": "r", "log": "driver.log"}
UI = "http://driver.example:4040"
Links = dict[str, str | None]


@pytest.mark.parametrize(
    "url", [UI, "https://driver/proxy/app-1/", "http://[2001:db8::1]:4040", "http://10.0.0.1:4040/jobs/?id=1"]
)
def test_a_web_address_is_one(url: str) -> None:
    assert WEB_URL.fullmatch(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "javascript:alert(1)",
        "data:text/html,x",
        "//driver:4040",
        "http://",
        "http://user:secret@driver:4040",
        "http://driver/a b",
        "http://driver\n",
        "http://driver/\u202e",
        f"http://driver/{'x' * 2_000}",
    ],
)
def test_what_a_browser_must_not_open_is_none(url: str) -> None:
    assert not WEB_URL.fullmatch(url)


def links(dag: str, task: str) -> Links:
    """Return what Airflow's REST API answers of the newest run of a DAG."""
    from airflow.models.dagrun import DagRun

    with create_session() as session:
        run = session.query(DagRun).filter(DagRun.dag_id == dag).order_by(DagRun.id.desc()).first()
        assert run is not None
        found = get_extra_links(dag, run.run_id, task, session, DBDagBag())
    return dict(found.extra_links)


class Reader:
    """A shared reader that gives its follower the events of a run."""

    def __init__(self, *events: RunEvent) -> None:
        self.events = events

    def follow(self, job: str, run: str, follower: Any, *, interval_s: float) -> Any:
        for event in self.events:
            follower._post(event)
        return self

    def stop(self) -> None:
        """Do nothing."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Links]:
    """The links of the task ``stream``, when it has submitted its job and when its trigger knows the driver's UI."""
    found: dict[str, Links] = {}
    publish, wait = JobTrigger._publish_spark_ui, JobTrigger.run

    def submit(self: SparkStreamOperator, context: Any) -> dict[str, str]:
        found["submitted"] = links(context["ti"].dag_id, "stream")
        found["instance"] = context["ti"]
        return RUN

    async def published(self: JobTrigger, url: str) -> None:
        await publish(self, url)
        found[f"deferred, {url}"] = links("linked", "stream")

    async def run(self: JobTrigger) -> AsyncIterator[TriggerEvent]:
        self.task_instance = found.pop("instance")  # type: ignore[assignment]  # as a triggerer does
        async for event in wait(self):
            yield event

    async def settings(self: KafkaHook) -> dict[str, Any]:
        return {"bootstrap.servers": "nowhere:1"}

    end = RunEnd(state="replaced", message="a newer run has the job", replaced_by="newer")
    reader = Reader(SparkUi(url=UI), SparkUi(url="javascript:alert(1)"), SparkUi(url=UI), end)
    monkeypatch.setattr(SparkStreamOperator, "submit_job", submit)
    monkeypatch.setattr(KafkaHook, "aget_settings", settings)
    monkeypatch.setattr(JobTrigger, "_publish_spark_ui", published)
    monkeypatch.setattr(JobTrigger, "run", run)
    monkeypatch.setattr(wasmline_provider.links, "PUBLISH_TIMEOUT_S", 300.0)  # a busy machine is no failure
    monkeypatch.setattr(job_trigger, "TRIGGER_ANSWER_TIMEOUT_S", 300.0)
    monkeypatch.setattr(job_trigger, "cluster_clients", lambda settings: SimpleNamespace(reader=reader))
    return found


def test_the_links_of_a_deferred_task_lead_to_its_log_and_to_its_driver_s_ui(
    run_dag: Callable[..., Any], seen: dict[str, Links]
) -> None:
    with DAG("linked", schedule=None) as dag:
        SparkStreamOperator(
            task_id="stream", job="j", transform="t", storage="/s", trigger_interval="1 second", deferrable=True
        )
    run = run_dag(dag)
    assert run.state == "success"
    status = f"http://localhost:8080/dags/linked/runs/{quote(run.run_id)}/tasks/stream?try_number=1"
    assert seen == {
        "submitted": {"Job status": status, "Spark UI": None},
        f"deferred, {UI}": {"Job status": status, "Spark UI": UI},
        "deferred, javascript:alert(1)": {"Job status": status, "Spark UI": None},
    }
    assert links("linked", "stream") == {"Job status": status, "Spark UI": None}, "its driver has ended"


def test_a_task_that_waits_on_its_worker_publishes_its_driver_s_ui_too(monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[tuple[Any, str]] = []
    reader = Reader(SparkUi(url=UI), RunEnd(state="replaced", message="why", replaced_by="newer"))
    monkeypatch.setattr(run_wait, "cluster_clients", lambda settings: SimpleNamespace(reader=reader))
    monkeypatch.setattr(KafkaHook, "get_settings", lambda self: {})
    monkeypatch.setattr(SparkUiLink, "publish", lambda self, ti, url: published.append((ti, url)))
    made = SparkStreamOperator(task_id="t", job="j", transform="t", storage="/s", trigger_interval="1 second")
    made.poll_until_complete(RUN, {"ti": "its task instance"})  # type: ignore[typeddict-item]
    assert published == [("its task instance", UI)]
    assert SPARK_UI.get_link(made, ti_key=None) == "", "the run has ended"  # type: ignore[arg-type]


def test_each_operator_of_a_job_has_the_links_of_the_metadata() -> None:
    listed = get_provider_info()["extra-links"]
    for operator in (SparkStreamOperator, TrainModelOperator):
        made = [type(each) for each in operator.operator_extra_links]
        assert [f"{each.__module__}.{each.__name__}" for each in made] == listed


def test_what_another_wrote_as_a_link_is_not_stored_either(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SparkStreamOperator(task_id="t", job="j", transform="t", storage="/s", trigger_interval="1 second")
    written = iter([UI, "javascript:alert(1)"])
    monkeypatch.setattr(BaseXCom, "get_value", lambda **of: next(written))
    assert SPARK_UI.get_link(made, ti_key=None) == UI  # type: ignore[arg-type]
    assert SPARK_UI.get_link(made, ti_key=None) == ""  # type: ignore[arg-type]


class Elsewhere(BaseXCom):
    """A custom backend: Airflow's API server reads what it stores, and not what that stands for."""

    @staticmethod
    def serialize_value(value: Any, **of: Any) -> str:
        return "s3://bucket/xcom"

    @staticmethod
    def deserialize_value(result: Any) -> Any:
        raise ValueError("not of this backend")


@pytest.mark.parametrize(
    "url",
    ["http://localhost:8080/dags/d/runs/r/tasks/t", "/airflow/dags/d/runs/ü/tasks/t", f"https://a/{'x' * 2_000}"],
)
def test_airflow_s_own_address_of_a_log_is_published_as_it_is_without_a_custom_backend(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    sent: list[Any] = []

    def send(message: Any) -> Any:
        sent.append(message)
        return XComResult(key=message.key, value=url)

    monkeypatch.setattr(xcom, "XCom", Elsewhere)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    ti = SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=-1)
    JOB_STATUS.publish(ti, url)
    assert [(each.key, each.value) for each in sent] == [(JOB_STATUS.xcom_key, url)]
    assert JOB_STATUS.get_link(None, ti_key=ti) == url  # type: ignore[arg-type]


def test_a_link_that_cannot_be_published_fails_no_task(caplog: pytest.LogCaptureFixture) -> None:
    ti = SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=None)
    SPARK_UI.publish(ti, UI)  # outside of a task's process
    assert "the link Spark UI is not published" in caplog.text
