"""The demo's Kafka and Airflow, in one folder of the repository."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import demo_settings
from demo_stack.progress_lines import Progress
from wasmline.errors import LocalError
from wasmline.kafka import KafkaConfig
from wasmline.local import LocalKafka, connector_jars, find_java
from wasmline.local.cds_archive import cds_archive_options
from wasmline_provider.local.airflow import LocalAirflow

MARK = "pyproject.toml"
FOLDER = Path("build", "demo")


def repository() -> Path:
    """Return the checkout in which this process was started. Raises LocalError elsewhere."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "dags" / "delivery_pipeline.py").exists() and (folder / MARK).exists():
            return folder
    raise LocalError("the demo runs in a checkout of the repository: change into one")


def close_orphans(kafka: KafkaConfig) -> None:
    """Write the last report of every run that has none: no driver outlives the Airflow that started it here.

    A killed stack cannot report that itself, and clients would wait for such a run until it counts as lost.
    """
    from wasmline.control import JobTopic
    from wasmline.job_specs import JobState

    jobs = JobTopic(kafka)
    try:
        for order in jobs.orders():
            report = jobs.find_report(order.spec.job, order.spec.run)
            if report is not None and not report.state.final:
                ended = "its driver ended with the Airflow that had started it"
                jobs.write_report(replace(report, state=JobState.FAILED, message=ended, spark_ui=""))
    finally:
        jobs.close()


class Stack:
    """A Kafka and an Airflow that are connected. Both keep their data in ``folder`` between two starts.

    With ``watch_dags`` Airflow reads DAG files again when they change, and lists them for its forms. ``connections``
    are Airflow's, besides that of the example DAGs' places, and those to this Kafka and to a Spark of this machine.
    """

    def __init__(
        self,
        root: Path,
        *,
        watch_dags: bool = False,
        connections: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        self._connections = {"wasmline_default": demo_settings.WASMLINE_CONNECTION, **connections}
        self.folder = root / FOLDER
        self.kafka = LocalKafka(self.folder / "kafka")
        self.airflow = LocalAirflow(
            self.folder / "airflow",
            root / "dags",
            connections=self._connections,
            variables={},
            watch_dags=watch_dags,
        )

    def running(self) -> bool:
        """Return whether any of the two runs."""
        return bool(self.kafka.running()) or self.airflow.running()

    def start(self, progress: Progress, *, detached: bool = False) -> None:
        """Start both, concurrently as far as they are independent; if one fails, stop the other."""
        find_java()
        if options := cds_archive_options():
            os.environ.setdefault("SPARK_SUBMIT_OPTS", options)  # Airflow and its tasks inherit it
        with ExitStack() as undo, ThreadPoolExecutor(2) as pool:
            preparing, connector = pool.submit(self.airflow.prepare), pool.submit(connector_jars)
            undo.callback(preparing.exception)
            undo.callback(connector.exception)
            progress.say("starting Kafka (its jars and the connector's are downloaded once) and preparing Airflow")
            progress.wait_for("starting Kafka")
            undo.callback(self.kafka.stop)
            self.kafka.start(detached=detached)
            progress.say(f"Kafka is up at {self.kafka.bootstrap_servers}")
            progress.wait_for("Kafka is up; preparing Airflow's database and DAGs, and the connector's jars")
            close_orphans(KafkaConfig({"bootstrap.servers": self.kafka.bootstrap_servers}))
            connector.result()
            preparing.result()
            self.airflow.connections = {
                **self._connections,
                "kafka_default": {
                    "conn_type": "kafka",
                    "extra": {"bootstrap.servers": self.kafka.bootstrap_servers},
                },
                "spark_default": {"conn_type": "spark", "host": "local[2]"},
            }
            progress.say("the database and the DAGs are ready; starting Airflow")
            progress.wait_for("starting Airflow's API server, scheduler and triggerer")
            self.airflow.start(detached=detached)
            progress.say(f"Airflow is up at {self.airflow.url}")
            undo.pop_all()

    def stop(self) -> None:
        """Stop both, Airflow first: its tasks and drivers use Kafka."""
        try:
            self.airflow.stop()
        finally:
            self.kafka.stop()
