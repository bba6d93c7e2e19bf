"""Builds and starts the spark-submit command of a job from Airflow's own ``spark`` connection."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from wasmline.digests import digest_of
from wasmline.errors import PrerequisiteMissing
from wasmline.kafka import KafkaConfig
from wasmline.kafka.config import VARIABLE as KAFKA_VARIABLE
from wasmline.spark.driver_process import (
    APPLICATION,
    driver_environment,
    require_options,
    spark_submit,
    start_supervisor,
)

if TYPE_CHECKING:
    from wasmline_provider.hooks.object_store import ObjectStoreLogin

SUBMISSION = {
    "k8s": "spark.kubernetes.submission.waitAppCompletion",
    "yarn": "spark.yarn.submit.waitAppCompletion",
}
"""By the kind of the master: the setting with which spark-submit ends once the driver was submitted."""

UPLOAD = "spark.kubernetes.file.upload.path"
"""The setting that lets spark-submit upload local files for a driver on Kubernetes."""

SECRET = re.compile(r"(?i)secret|password|passphrase|token|(access|account|private)[._]?key|[.]sas[.]|credential")
"""Names that Spark redacts in its UI, and credentials."""

SECRET_VALUE = re.compile(r"(?i)(secret|password|passphrase|token)([.]?(key|value))?=|://[^/@\s]+:[^/@\s]+@")
"""Values with a secret in them: a Java property, or a URL with a password."""

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
    :param application: in deploy mode cluster, the URL of ``wasmline/spark/main.py`` for the driver, such as
        ``local:///opt/venv/lib/python3.12/site-packages/wasmline/spark/main.py`` in its image.
    """

    def __init__(
        self,
        spark_conn_id: str = "spark_default",
        *,
        name: str = "wasmline",
        conf: Mapping[str, Any] | None = None,
        jars: str | None = None,
        options: Mapping[str, Any] | None = None,
        application: str | None = None,
    ) -> None:
        _check(conf or {}, options or {})
        self.get_connection(spark_conn_id)  # the provider's hook would use YARN if the connection is missing
        try:
            super().__init__(conn_id=spark_conn_id, name=name, conf=dict(conf or {}), jars=jars, **dict(options or {}))
        except NameError as error:  # of the provider's hook, for a k8s:// master without the client of Kubernetes
            install = "pip install apache-airflow-providers-cncf-kubernetes"
            raise PrerequisiteMissing(f"the connection {spark_conn_id} needs {install}", install=install) from error
        self._driver_application = application or str(APPLICATION)
        self._given: dict[str, Any] = {"conf": dict(conf or {}), "jars": jars, "options": dict(options or {})}

    @property
    def master(self) -> str:
        return str(self._connection["master"])

    def settings_digest(self, launcher: str | None = None, login: ObjectStoreLogin | None = None) -> str:
        """Identify the driver's settings: master, deploy mode, launcher, the arguments given here.

        If this machine starts the driver, names and contents of ``py_files`` count; on a launcher's, the paths are its
        own. If the driver runs here, so does what identifies its login: a driver keeps the one with which it started.
        """
        where = {"master": self.master, "deploy_mode": self._connection["deploy_mode"], "launcher": launcher}
        settings = {**where, **self._given}
        if not launcher:
            files = str(self._given["options"].get("py_files") or "").split(",")
            contents = [_content(Path(name)) for name in files if name]
            settings |= {"options": self._given["options"] | {"py_files": contents}}
            if login and not self.on_cluster:
                settings |= {"object_store": login.identity()}
        return digest_of(json.dumps(settings, sort_keys=True, default=str).encode())

    @property
    def on_cluster(self) -> bool:
        """Whether the driver runs on the cluster, not on the machine of its spark-submit.

        The options and the connection decide, else the setting ``spark.submit.deployMode``, as spark-submit does.
        """
        return bool((self._connection["deploy_mode"] or self._conf.get("spark.submit.deployMode")) == "cluster")

    def command(self, job: str, run: str) -> list[str]:
        """Return the spark-submit command of a run, independent of Kafka's secrets.

        In deploy mode cluster it ends once the driver was submitted, unless ``conf`` says otherwise.
        """
        self.require_deploy_mode()
        if self.on_cluster:
            self._conf.setdefault(SUBMISSION[_kind(self.master)], "false")
        self._add_connector_jars()
        self._application_args = ["--job", job, "--run", run]
        return self._build_spark_submit_command(self._driver_application)

    def launch_arguments(self) -> list[str]:
        """Return the options of spark-submit for a launcher, which adds its own jars, application and Kafka settings.

        Raises PrerequisiteMissing for deploy mode cluster, where no launcher is needed, and for a keytab of the
        connection, which is a file of this machine.
        """
        if self.on_cluster:
            raise PrerequisiteMissing(
                "in deploy mode cluster the driver has a home of its own: leave out the launcher",
                install="launcher=None",
            )
        if self._connection["keytab"] != self._keytab:
            raise PrerequisiteMissing(
                "the keytab of the Spark connection is on this machine, not on the launcher's: keep it there, and name "
                "its path by spark_options={'keytab': …}",
                install="spark_options={'keytab': PATH}",
            )
        arguments = self._build_spark_common_args()
        require_options(arguments)
        return list(arguments)

    def environment(self, kafka: KafkaConfig, login: ObjectStoreLogin | None = None) -> dict[str, str]:
        """Return the driver's environment: this process's, without Airflow's variables, with Spark's and Kafka's.

        ``login`` is that to the object store of the job's data.
        """
        base = {name: value for name, value in os.environ.items() if not name.lstrip("_").startswith("AIRFLOW")}
        return driver_environment(login.environment(base) if login else base, kafka, self.master)

    def start_driver(
        self, job: str, run: str, kafka: KafkaConfig, log: Path, login: ObjectStoreLogin | None = None
    ) -> int:
        """Start the driver of a run under its supervisor and return the supervisor's process id.

        In deploy mode cluster the command ends once the driver was submitted, and the driver's reports follow.
        """
        options = ["--submits"] if self.on_cluster else []
        process = start_supervisor(self.command(job, run), self.environment(kafka, login), job, run, log, options)
        process.returncode = 0  # this process does not wait for it: without this, Popen warns when it is collected
        return process.pid

    def prepare(self, log: Path) -> None:
        """Make and get what a driver needs here: the folder of its log, and the connector's jars.

        Raises OSError, ArtifactUnavailable for jars that cannot be downloaded.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        self._add_connector_jars()

    def _add_connector_jars(self) -> None:
        if not self._jars and not self._packages:
            from wasmline.local import connector_jars

            self._jars = ",".join(map(str, connector_jars()))

    def _get_spark_binary_path(self) -> list[str]:
        binary = self._connection["spark_binary"]
        return [spark_submit() if binary == "spark-submit" else binary]

    def require_deploy_mode(self) -> None:
        """Raise PrerequisiteMissing for a driver on the cluster that could not start there.

        It needs a master that runs Python drivers, Kafka's settings, which only the cluster can pass without exposing
        them, and files that it can read.
        """
        if not self.on_cluster:
            return
        kind = _kind(self.master)
        if kind not in SUBMISSION:
            raise PrerequisiteMissing(
                f"the master {self.master} runs no Python driver in deploy mode cluster: use deploy mode client, on a "
                "worker that outlives its tasks or with a launcher; or Kubernetes or YARN",
                install="deploy-mode client",
            )
        if not any(re.search(rf"\.{KAFKA_VARIABLE}(_FILE)?$", name) for name in self._conf):
            raise PrerequisiteMissing(
                "in deploy mode cluster the driver starts elsewhere and cannot get Kafka's settings from here: give it "
                f"{KAFKA_VARIABLE}_FILE (spark.yarn.appMasterEnv.{KAFKA_VARIABLE}_FILE, a path on the cluster) or a "
                f"Kubernetes secret (spark.kubernetes.driver.secretKeyRef.{KAFKA_VARIABLE}), or use deploy mode client",
                install=f"spark.yarn.appMasterEnv.{KAFKA_VARIABLE}_FILE=PATH",
            )
        if kind == "k8s" and UPLOAD not in self._conf and (local := self._local_files()):
            raise PrerequisiteMissing(
                f"a driver on Kubernetes cannot read {', '.join(local)}, on this machine: name files of its image by "
                f"local:// URLs (application, jars, py_files), or set {UPLOAD}",
                install=f"{UPLOAD}=URL",
            )

    def _local_files(self) -> list[str]:
        """Return the files of the command that are on this machine."""
        jars = self._jars if self._jars or self._packages else "the connector's jars"
        named = ",".join(filter(None, (self._driver_application, jars, self._py_files, self._files, self._archives)))
        return [each for each in named.split(",") if "://" not in each]


def _content(file: Path) -> list[str]:
    """Identify a file by its name and contents, wherever it is; anything else by its path."""
    return [file.name, digest_of(file.read_bytes())] if file.is_file() else [str(file)]


def _kind(master: str) -> str:
    """Return the kind of a master URL: k8s, yarn, spark, local …"""
    return re.split(r"[:\[]", master, maxsplit=1)[0]


def _check(conf: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    shown = {f"conf[{name!r}]": value for name, value in conf.items() if "redaction." not in name}
    for name, value in {**shown, **options}.items():
        if SECRET_VALUE.search(str(value)):
            raise ValueError(
                f"{name} looks like it contains a secret, and every user of the machine can read a command line: put "
                "it into spark-defaults.conf, or into a file named by options={'properties_file': …}"
            )
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
