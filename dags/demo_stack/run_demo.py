"""``make demo``: runs the delivery pipeline and the parallel mode comparison on a real Airflow, Kafka and Spark.

The demo's topics are deleted first: each run begins anew.

Exit status: 0 done, 1 a failure, with its log, 130 ended by Ctrl-C. Everything that was started is stopped.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
from rich.console import Console

import demo_settings
from delivery.html_report import write_report
from delivery.report import JSON_FILE, DemoReport
from delivery.text_report import print_summary
from demo_stack.job_messages import JobMessages
from demo_stack.progress_lines import Progress
from demo_stack.run_progress import RunProgress
from demo_stack.stack import Stack
from demo_stack.terminal_progress import progress_on
from enriching.benchmark import ConsumerComparison
from enriching.service import SlowService
from wasmline.documents import decode
from wasmline.errors import JobFailed, LocalError, WasmlineError
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

ORDERS, SEQUENTIAL_ORDERS, PARTITIONS = 1_800, 600, 3
CALL_DELAY_S = 0.05
"""Duration of a call of the service, in seconds."""

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JDK_JAVA_OPTIONS of JVMs that live for less than a minute: half of their CPU time would go into compiling."""

RUN_TIMEOUT_S = 1800.0
LOG_LINES = 30


def demo(stack: Stack, service: SlowService, conf: dict[str, Any], console: Console) -> None:
    """Run the pipeline once, then the comparison, and print the summary once all has been stopped."""
    if stack.running():
        raise LocalError("the demo's Kafka or Airflow runs already: `make down` stops them")
    with progress_on(console) as progress:
        stack.start(progress)
        try:
            report = _run(stack, service, conf, console, progress)
        finally:
            progress.wait_for("stopping Airflow and Kafka")
            stack.stop()
        progress.say("Airflow and Kafka are down; their data stays")
    print_summary(report, console)


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


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Parse the command line and run the demo."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="a CSV file of real deliveries, to be used instead of made-up ones")
    parser.add_argument("--rows", type=int, default=45_600, help="how many deliveries to make up (default: 45,600)")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    signal.signal(signal.SIGTERM, _interrupt)
    os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)
    console = Console()
    try:
        conf = {"rows": arguments.rows, "seed": arguments.seed, "data": _data(arguments.data), "fresh": True}
        with SlowService(CALL_DELAY_S) as service:
            customers = {"conn_type": "http", "host": HOST, "port": service.port}
            stack = Stack(demo_settings.REPOSITORY, connections={"customers": customers})
            demo(stack, service, {**conf, "report": str(stack.folder)}, console)
    except KeyboardInterrupt:
        console.print("ended; everything that was started is stopped")
        return 130
    except (WasmlineError, httpx.HTTPError, TimeoutError) as error:
        console.print(f"demo: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    return 0


def _data(path: Path | None) -> str | None:
    if path is None:
        return None
    if not path.is_file():
        raise LocalError(f"there is no file {path}")
    return str(path.absolute())


if __name__ == "__main__":
    sys.exit(main())
