"""Starts drivers: spark-submit under its supervisor, in a session of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from wasmline.errors import InvalidJob
from wasmline.job_specs import NAME
from wasmline.kafka import KafkaConfig
from wasmline.kafka.config import VARIABLE
from wasmline.local.installed_spark import spark_home

APPLICATION = Path(__file__).with_name("main.py")
"""The application: a file, because spark-submit takes no module."""

FENCED_STATUS = 81
"""The exit status of a driver whose run goes on with another one."""

SUPERVISOR = "wasmline.spark.spark_submit_supervisor"

VALUE_OPTIONS = frozenset(
    {
        "--archives",
        "--conf",
        "--deploy-mode",
        "--driver-class-path",
        "--driver-cores",
        "--driver-memory",
        "--exclude-packages",
        "--executor-cores",
        "--executor-memory",
        "--files",
        "--jars",
        "--keytab",
        "--master",
        "--name",
        "--num-executors",
        "--packages",
        "--principal",
        "--properties-file",
        "--proxy-user",
        "--py-files",
        "--queue",
        "--repositories",
        "--total-executor-cores",
    }
)
"""The options of spark-submit that an order may have; each takes a value."""

FLAG_OPTIONS = frozenset({"--verbose"})
"""The same without a value."""


def submit_command(arguments: Sequence[str], jars: str, job: str, run: str) -> list[str]:
    """Return the spark-submit command of a run, with this machine's Spark and connector's jars.

    ``jars`` are left out where the arguments have jars or packages. Raises InvalidJob for an argument that is not an
    option of spark-submit for an application, the first of which would be taken as the application, and for a run that
    is no name.
    """
    require_options(arguments)
    if not NAME.fullmatch(run):  # it is a file's name and an argument
        raise InvalidJob(f"{run[:100]!r} is not a run: use up to 128 letters, digits, '.', '_' and '-'")
    own = [] if {"--jars", "--packages"} & set(arguments) else ["--jars", jars]
    return [spark_submit(), *arguments, *own, str(APPLICATION), "--job", job, "--run", run]


def require_options(arguments: Sequence[str]) -> None:
    """Raise InvalidJob unless ``arguments`` are options of spark-submit that an order may have, with their values."""
    left = iter(arguments)
    for option in left:
        if option in FLAG_OPTIONS:
            continue
        if option not in VALUE_OPTIONS:
            known = ", ".join(sorted(VALUE_OPTIONS | FLAG_OPTIONS))
            raise InvalidJob(f"{option[:100]!r} is not an option of spark-submit that an order may have: {known}")
        if next(left, None) is None:
            raise InvalidJob(f"the option {option} of spark-submit has no value")


def option_value(arguments: Sequence[str], option: str) -> str:
    """Return the value of an option, "" if it is not there."""
    return next((value for name, value in pairwise(arguments) if name == option), "")


def spark_submit() -> str:
    """Return the program of this machine's Spark."""
    home = spark_home()
    return str(home / "bin" / "spark-submit") if home else "spark-submit"


def driver_environment(base: Mapping[str, str], kafka: KafkaConfig, master: str) -> dict[str, str]:
    """Return the environment of a driver: ``base`` with Spark's and Kafka's settings."""
    environment = {**base, VARIABLE: kafka.to_json()}
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    if home := spark_home():
        environment["SPARK_HOME"] = str(home)
    if master.startswith("local"):
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return environment


def start_supervisor(
    command: Sequence[str],
    environment: Mapping[str, str],
    job: str,
    run: str,
    log: Path,
    options: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start a spark-submit command under its supervisor.

    It outlives this process: it has a session of its own and none of this process's streams. ``options`` are further
    ones of the supervisor.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    supervisor = [sys.executable, "-m", SUPERVISOR, "--job", job, "--run", run, "--log", str(log), *options, "--"]
    with log.open("ab") as output:
        return subprocess.Popen(
            [*supervisor, *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            close_fds=True,
        )
