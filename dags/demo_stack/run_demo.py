"""Runs the delivery pipeline and the parallel mode comparison on a real Airflow, Kafka and Spark.

The demo's topics are deleted first: each run begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import demo_settings
from delivery.html_report import write_report
from delivery.report import JSON_FILE, DemoReport
from demo_stack.job_messages import JobMessages
from demo_stack.progress_lines import Progress
from demo_stack.run_progress import RunProgress
from demo_stack.stack import Stack
from enriching.benchmark import ConsumerComparison
from enriching.service import SlowService
from wasmline.documents import decode
from wasmline.errors import JobFailed, LocalError
from wasmline.kafka import KafkaConfig
from wasmline.local.ports import HOST
from wasmline_provider.local.api_client import AirflowApi


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A DAG to run: the display order of its tasks, and the jobs that some of them wait for."""

    dag: str
    order: tuple[str, ...]
    jobs: Mapping[str, str]


PIPELINE = Steps(
    dag="delivery_pipeline",
    order=(
        *("topics", "build", "produce", "test", "publish", "deploy", "stream", "verify"),
        *("train", "promote", "compile_model", "deploy_model", "predict", "verify_predictions", "report"),
    ),
    jobs={
        "stream": demo_settings.TRANSFORM,
        "train": demo_settings.TRAIN_JOB,
        "predict": demo_settings.PREDICT_JOB,
    },
)
ENRICHMENT = Steps(dag="enrich_over_http", order=("topics", "enrich"), jobs={"enrich": demo_settings.ENRICH_JOB})

ORDERS, SEQUENTIAL_ORDERS, PARTITIONS = 1_800, 300, 3
CALL_DELAY_S = 0.05
"""Duration of a call of the service, in seconds."""

RUN_TIMEOUT_S = 1800.0
LOG_LINES = 30


def run(rows: int, seed: int, data: Path | None, console: Console, progress: Progress) -> DemoReport:
    """Start all, run the pipeline once, then the comparison, stop all, and return the report, which is written, too."""
    with SlowService(CALL_DELAY_S) as service:
        customers = {"conn_type": "http", "host": HOST, "port": service.port}
        stack = Stack(demo_settings.REPOSITORY, connections={"customers": customers})
        if stack.running():
            raise LocalError("the demo's Kafka or Airflow runs already: `make down` stops them")
        conf = {"rows": rows, "seed": seed, "data": _data(data), "fresh": True, "report": str(stack.folder)}
        stack.start(progress)
        try:
            report = _run(stack, service, conf, console, progress)
        finally:
            progress.wait_for("stopping Airflow and Kafka")
            stack.stop()
        progress.say("Airflow and Kafka are down; their data stays")
    return report


def _run(stack: Stack, service: SlowService, conf: dict[str, Any], console: Console, progress: Progress) -> DemoReport:
    """Run both DAGs, and write and return the report."""
    api = stack.airflow.api
    if errors := api.import_errors():
        raise LocalError("\n".join(f"{file} cannot be loaded:\n{trace}" for file, trace in errors.items()))
    kafka = KafkaConfig({"bootstrap.servers": stack.kafka.bootstrap_servers})
    follow(api, kafka, PIPELINE, conf, console, progress)
    comparison = ConsumerComparison(
        kafka=kafka,
        service=service,
        topic=demo_settings.ORDERS,
        enriched=demo_settings.ENRICHED,
        dead_letters=demo_settings.UNENRICHED,
        partitions=PARTITIONS,
        run_parallel=lambda: follow(api, kafka, ENRICHMENT, {}, console, progress),
    ).compare(ORDERS, SEQUENTIAL_ORDERS, progress)
    progress.wait_for("writing the report")
    folder = Path(conf["report"])
    report = replace(decode(DemoReport, (folder / JSON_FILE).read_bytes()), comparison=comparison)
    write_report(report, folder)
    return report


def follow(
    api: AirflowApi, kafka: KafkaConfig, steps: Steps, conf: dict[str, Any], console: Console, progress: Progress
) -> None:
    """Run a DAG to its end and show its progress. Raises JobFailed, after the log of the failed tasks."""
    api.abandon(steps.dag)
    run = api.trigger(steps.dag, conf)
    with closing(JobMessages(kafka, steps.jobs)) as news, RunProgress(progress, steps.order) as shown:
        state = api.wait(steps.dag, run, timeout=RUN_TIMEOUT_S, look=lambda tasks: shown.show(tasks, news.of(tasks)))
    if state != "success":
        explain(api, steps.dag, run, console)
        raise JobFailed(f"run {run} of {steps.dag} ended as {state}", report={})


def explain(api: AirflowApi, dag: str, run: str, console: Console) -> None:
    """Print the end of the log of each task that failed."""
    for task in api.tasks(dag, run):
        if task.state == "failed":
            console.rule(f"{task.task} failed; the end of its log")
            for line in api.log(dag, run, task)[-LOG_LINES:]:
                console.print(line, markup=False, highlight=False, soft_wrap=True)


def _data(path: Path | None) -> str | None:
    if path is None:
        return None
    if not path.is_file():
        raise LocalError(f"there is no file {path}")
    return str(path.absolute())
