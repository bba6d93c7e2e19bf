"""Builds and starts the spark-submit command of a job from Airflow's own ``spark`` connection."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from wasmline.digests import digest_of
from wasmline.errors import PrerequisiteMissing
from wasmline.kafka import KafkaConfig

KAFKA_VARIABLE = "WASMLINE_KAFKA_CONFIG"

SECRET = re.compile(r"(?i)secret|password|token|access[.]?key|credential")
"""Names that Spark redacts in its UI, and credentials."""

REFERENCE = re.compile(
    r"(?i)secretKeyRef|kubernetes\.(driver|executor)\.secrets\.|\.enabled$|\.provider$|^spark\.redaction\."
)
"""Settings whose names look like secrets, but whose values only name the location or the provider of one."""

OWN = frozenset({"conf", "conn_id", "jars", "env_vars", "application_args", "name", "post_submit_commands"})
PASSED = frozenset(inspect.signature(SparkSubmitHook.__init__).parameters) - OWN - {"self"}
"""The options of the Spark provider's hook that are passed unchanged."""


class SparkJobHook(SparkSubmitHook):
    """Starts drivers of Wasmline jobs with spark-submit, on the master of a ``spark`` connection.

    The command is the Spark provider's own, so that a connection means the same here as in a SparkSubmitOperator. It
    never contains a secret: the cluster's settings reach the driver only by its environment. The connector's jars are
    local files, unless ``jars`` or ``packages`` name others. If the environment has PySpark, its Spark and Python run.

    :param spark_conn_id: the connection, of Airflow's type ``spark``.
    :param name: the application's name in Spark's UI.
    :param conf: Spark settings. One whose name looks like a secret is rejected: it would be on the command line.
    :param jars: comma-separated jars with Spark's Kafka connector, in place of the bundled ones.
    :param options: other arguments of SparkSubmitHook, such as ``driver_memory`` or ``num_executors``.
    """

    def __init__(
        self,
        spark_conn_id: str = "spark_default",
        *,
        name: str = "wasmline",
        conf: Mapping[str, Any] | None = None,
        jars: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        _check(conf or {}, options or {})
        self.get_connection(spark_conn_id)  # the provider's hook would use YARN if the connection is missing
        super().__init__(conn_id=spark_conn_id, name=name, conf=dict(conf or {}), jars=jars, **dict(options or {}))
        self._given: dict[str, Any] = {"conf": dict(conf or {}), "jars": jars, "options": dict(options or {})}

    @property
    def master(self) -> str:
        return str(self._connection["master"])

    @property
    def settings_digest(self) -> str:
        """Identifies the driver's settings: master, deploy mode, the arguments given here, and local ``py_files``."""
        files = str(self._given["options"].get("py_files") or "").split(",")
        contents = {name: digest_of(Path(name).read_bytes()) for name in files if Path(name).is_file()}
        where = {"master": self.master, "deploy_mode": self._connection["deploy_mode"]}
        settings = {**where, **self._given, "py_files": contents}
        return digest_of(json.dumps(settings, sort_keys=True, default=str).encode())

    def command(self, job: str, run: str) -> list[str]:
        """Return the spark-submit command of a run, independent of Kafka's secrets."""
        self._check_deploy_mode()
        if not self._jars and not self._packages:
            from wasmline.local import connector_jars

            self._jars = ",".join(map(str, connector_jars()))
        self._application_args = ["--job", job, "--run", run]
        return self._build_spark_submit_command(str(_driver()))

    def environment(self, kafka: KafkaConfig) -> dict[str, str]:
        """Return the driver's environment: this process's, without Airflow's variables, with Spark's and Kafka's."""
        environment = {name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")}
        environment[KAFKA_VARIABLE] = kafka.to_json()
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
        if spark_home := _spark_home():
            environment["SPARK_HOME"] = spark_home
        if self.master.startswith("local"):
            environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        return environment

    def launch(self, job: str, run: str, kafka: KafkaConfig, log: Path) -> int:
        """Start the driver of a run under its supervisor and return the supervisor's process id.

        It outlives this process: it has a session of its own and none of this process's streams, which Airflow watches.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        supervisor = [
            sys.executable,
            "-m",
            "wasmline.spark.spark_submit_supervisor",
            "--job",
            job,
            "--run",
            run,
            "--log",
            str(log),
            "--",
        ]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*supervisor, *self.command(job, run)],
                env=self.environment(kafka),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                close_fds=True,
            )
        process.returncode = 0  # this process does not wait for it: without this, Popen warns when it is collected
        return process.pid

    def _get_spark_binary_path(self) -> list[str]:
        binary = self._connection["spark_binary"]
        home = _spark_home()
        if binary == "spark-submit" and home:
            return [str(Path(home) / "bin" / binary)]
        return [binary]

    def _check_deploy_mode(self) -> None:
        """Reject a remote driver without Kafka settings: only its cluster can pass them without exposing them."""
        if self._connection["deploy_mode"] != "cluster":
            return
        if not any(re.search(rf"\.{KAFKA_VARIABLE}(_FILE)?$", name) for name in self._conf):
            raise PrerequisiteMissing(
                "in deploy mode cluster the driver starts elsewhere and cannot get Kafka's settings from here: give it "
                f"{KAFKA_VARIABLE}_FILE (spark.yarn.appMasterEnv.{KAFKA_VARIABLE}_FILE, a path on the cluster) or a "
                f"Kubernetes secret (spark.kubernetes.driver.secretKeyRef.{KAFKA_VARIABLE}), or use deploy mode client",
                install=f"spark.yarn.appMasterEnv.{KAFKA_VARIABLE}_FILE=PATH",
            )


def _check(conf: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    for name in conf:
        if SECRET.search(name) and not REFERENCE.search(name):
            raise ValueError(
                f"conf[{name!r}] looks like a secret, and every user of the machine can read a command line: "
                "put it into spark-defaults.conf, or into a file named by options={'properties_file': …}"
            )
        if name.endswith(f".{KAFKA_VARIABLE}") and not REFERENCE.search(name):
            raise ValueError(
                f"conf[{name!r}] would put Kafka's settings on the command line: use {KAFKA_VARIABLE}_FILE"
            )
    if unknown := sorted(options.keys() - PASSED):
        raise ValueError(f"options {', '.join(unknown)} are not among {', '.join(sorted(PASSED))}")


def _spark_home() -> str | None:
    """Return $SPARK_HOME, else the Spark of this environment's PySpark, else None."""
    if asked := os.environ.get("SPARK_HOME"):
        return asked
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent
    return str(home) if (home / "bin" / "spark-submit").exists() else None


def _driver() -> Path:
    """Return the application: a file, because spark-submit takes no module."""
    spec = importlib.util.find_spec("wasmline.spark")
    if spec is None or spec.origin is None:
        raise PrerequisiteMissing("wasmline.spark is not installed here", install="pip install 'wasmline[spark]'")
    return Path(spec.origin).with_name("main.py")
