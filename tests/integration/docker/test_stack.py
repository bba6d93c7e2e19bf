"""The default services of the Compose file together, without containers: both demos, and a training beside streams."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from urllib.error import URLError
from urllib.request import urlopen

import psutil  # type: ignore[import-untyped]
import pytest

import demo_settings
from delivery.generator import generate
from support.containers.native_services import NativeServices
from support.supervision.processes import kill
from wasmline.control import JobTopic, control_topics
from wasmline.errors import JobNotFound
from wasmline.job_specs import JobReport
from wasmline.kafka import Topics, produce_all, read_to_end
from wasmline.local.ports import HOST
from wasmline.local.process import wait_until
from wasmline_provider.local import AirflowApi

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(3_000)]

START_TIMEOUT_S = 600.0
RUN_TIMEOUT_S = 900.0
STREAMS = {"delivery-distance": 0, "enrich-over-http": 1}
"""The endless streams, with the distance of their metrics' ports from the first one."""

ORDERS = 300
DELIVERIES = 2_000


class Stack:
    """The running services, and what a user sees of them."""

    def __init__(self, services: NativeServices, api: AirflowApi) -> None:
        self.services = services
        self.api = api

    def start_run(self, dag: str, **conf: object) -> str:
        self.api.unpause(dag)
        return self.api.trigger(dag, conf)

    def await_success(self, dag: str, run: str) -> None:
        """Wait for a run's success; a failure shows the ends of its failed tasks' logs."""
        state = self.api.wait(dag, run, timeout=RUN_TIMEOUT_S)
        failed = [task for task in self.api.tasks(dag, run) if task.state == "failed"]
        logs = {task.task: "\n".join(self.api.log(dag, run, task)[-30:]) for task in failed}
        assert state == "success", "\n".join(f"{task}:\n{log}" for task, log in logs.items())

    def report(self, job: str) -> JobReport | None:
        """Return the last report of a job's current run."""
        with closing(JobTopic(self.services.kafka)) as jobs:
            try:
                return jobs.report(job, jobs.order(job).spec.run)
            except JobNotFound:
                return None

    def features(self) -> int:
        """Return how many records the topic of features has."""
        return sum(Topics(self.services.kafka).end_offsets(demo_settings.FEATURES).values())

    def is_running(self, job: str) -> bool:
        report = self.report(job)
        return report is not None and report.state.value == "running"

    def applications(self) -> list[dict[str, object]]:
        """Return Spark's applications that run now, as the master tells them."""
        with urlopen(f"http://{HOST}:{self.services.ports['spark_page']}/json/") as answer:
            return list(json.load(answer)["activeapps"])


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Start the services in the order of their dependencies."""
    services = NativeServices(tmp_path_factory.mktemp("containers"))
    page = str(services.ports["spark_page"])
    master = {"SPARK_MASTER_PORT": str(services.ports["spark"]), "SPARK_MASTER_WEBUI_PORT": page}
    airflow = {
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(services.ports["logs"]),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(services.ports["triggers"]),
        "PYTHONWARNINGS": "ignore",
    }
    with ExitStack() as running:
        running.enter_context(services.running_kafka())
        running.callback(end_drivers, services)
        running.enter_context(services.running("spark-master", master))
        assert wait_until(lambda: "I have been elected leader" in services.end_of_log("spark-master"), START_TIMEOUT_S)
        running.enter_context(services.running("spark-worker", {"SPARK_WORKER_WEBUI_PORT": "0"}))
        running.enter_context(services.running("customers"))
        running.enter_context(services.running("launcher"))
        running.enter_context(services.running("airflow", airflow))
        api = AirflowApi(f"http://{HOST}:{services.ports['airflow']}")
        running.callback(api.close)
        components = ["scheduler", "triggerer", "dag_processor"]
        assert wait_until(lambda: api.healthy(components), START_TIMEOUT_S), services.end_of_log("airflow")
        api.login()
        assert wait_until(lambda: answers(f"{api.url}/execution/health"), START_TIMEOUT_S)  # made at its first request
        assert wait_until(lambda: api.knows("supervise_streams"), START_TIMEOUT_S), services.end_of_log("airflow")
        yield Stack(services, api)


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=START_TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


def end_drivers(services: NativeServices) -> None:
    """Kill the drivers and their supervisors, which outlive the launcher and Airflow."""
    control_topics.ensure(services.kafka)
    with closing(JobTopic(services.kafka)) as jobs:
        runs = [f"--run {order.spec.run}" for order in jobs.orders()]
    processes = psutil.process_iter(["cmdline"])
    kill([each for each in processes if any(run in " ".join(each.info["cmdline"] or ()) for run in runs)])


def test_a_training_ends_while_the_endless_streams_of_both_demos_run(stack: Stack) -> None:
    services, api = stack.services, stack.api
    assert api.import_errors() == {}
    assert api.get("/pools/streams")["slots"] == 4

    stack.await_success("delivery_pipeline", stack.start_run("delivery_pipeline", rows=6_000))

    write = [sys.executable, "-m", "enriching.write_orders", str(ORDERS)]
    subprocess.run(write, env=services.environment("airflow"), check=True, capture_output=True)
    enrichment = stack.start_run("enrich_over_http", pause="1 second")
    stack.await_success("supervise_streams", stack.start_run("supervise_streams"))
    assert wait_until(lambda: all(map(stack.is_running, STREAMS)), START_TIMEOUT_S), services.end_of_log("launcher")
    enriched = lambda: len(list(read_to_end(services.kafka, "orders.enriched"))) == ORDERS  # noqa: E731
    assert wait_until(enriched, START_TIMEOUT_S), stack.report("enrich-over-http")

    features = stack.features()
    made = ((each.key, each.value, None, each.timestamp_ms) for each in generate(DELIVERIES, seed=8))
    produce_all(services.kafka, demo_settings.RAW, made)
    assert wait_until(lambda: stack.features() > features + DELIVERIES / 2, START_TIMEOUT_S), stack.report(
        demo_settings.TRANSFORM
    )
    training = stack.start_run("retrain_delivery_eta", min_new_rows=500)
    stack.await_success("retrain_delivery_eta", training)
    states = {task.task: task.state for task in api.tasks("retrain_delivery_eta", training)}
    assert states["train"] == "success", "with new records it is not skipped"

    assert all(map(stack.is_running, STREAMS)), {job: stack.report(job) for job in STREAMS}
    cores = {each["name"]: each["cores"] for each in stack.applications()}
    assert cores.items() >= {f"wasmline {job}": 3 for job in STREAMS}.items()
    for job, number in STREAMS.items():
        assert (services.folder / "wasmline" / "drivers" / job).is_dir(), "the launcher started it"
        with urlopen(f"http://{HOST}:{services.ports['metrics'] + number}/metrics") as answer:
            assert f'job="{job}"' in answer.read().decode()
    with closing(JobTopic(services.kafka)) as jobs:
        for job in STREAMS:
            jobs.stop(job, jobs.order(job).spec.run)
    stack.await_success("enrich_over_http", enrichment)
