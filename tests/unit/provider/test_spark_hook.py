"""The spark-submit command of a job: what is on it, and what never is."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowNotFoundException

from wasmline.errors import PrerequisiteMissing
from wasmline.kafka import KafkaConfig
from wasmline_provider.hooks.spark import KAFKA_VARIABLE, SparkJobHook

SECRET = "hunter2-never-to-be-seen"
KAFKA = KafkaConfig(
    {
        "bootstrap.servers": "broker:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "user",
        "sasl.password": SECRET,
    }
)
MASTERS = [
    {"host": "local[2]"},
    {"host": "spark://master", "port": 7077},
    {"host": "yarn", "extra": {"deploy-mode": "client", "queue": "night"}},
]


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("SPARK_HOME", raising=False)

    def connect(master: dict[str, Any], **arguments: Any) -> SparkJobHook:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_TEST", json.dumps({"conn_type": "spark", **master}))
        return SparkJobHook("spark_test", **{"jars": "/a.jar,/b.jar", **arguments})

    return connect


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


@pytest.mark.parametrize("master", MASTERS, ids=lambda master: master["host"])
def test_the_command_names_master_jars_application_and_run_and_no_secret(
    connect: Any, master: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    hook = connect(master, conf={"spark.ui.enabled": "false"}, options={"driver_memory": "1g"})
    with caplog.at_level(logging.DEBUG):
        environment = hook.environment(KAFKA)
        command = hook.command("clean", "run-1")
    assert option(command, "--master") == ":".join(str(master[key]) for key in ("host", "port") if key in master)
    assert option(command, "--jars") == "/a.jar,/b.jar"
    assert option(command, "--conf") == "spark.ui.enabled=false"
    assert option(command, "--driver-memory") == "1g"
    assert command[-5:] == [command[-5], "--job", "clean", "--run", "run-1"]
    assert Path(command[-5]).read_text().startswith('"""The application')
    assert json.loads(environment[KAFKA_VARIABLE])["sasl.password"] == SECRET
    for text in (" ".join(command), repr(hook), repr(vars(hook)), caplog.text):
        assert SECRET not in text


def test_the_environments_own_spark_and_python_run_the_job(connect: Any) -> None:
    hook = connect({"host": "local[2]"})
    environment = hook.environment(KAFKA)
    submit = Path(hook.command("clean", "run-1")[0])
    assert submit == Path(environment["SPARK_HOME"]) / "bin" / "spark-submit"
    assert os.access(submit, os.X_OK)
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_a_spark_elsewhere_is_left_its_own_address(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    assert "SPARK_LOCAL_IP" not in connect({"host": "spark://master", "port": 7077}).environment(KAFKA)


def test_airflows_own_settings_do_not_reach_the_driver(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", SECRET)
    monkeypatch.setenv("__AIRFLOW_SUPERVISOR_FD", "7")
    assert not [name for name in connect({"host": "local"}).environment(KAFKA) if "AIRFLOW" in name]


def test_the_connectors_jars_are_local_files_unless_others_are_named(connect: Any) -> None:
    jars = option(connect({"host": "local"}, jars=None).command("clean", "run-1"), "--jars").split(",")
    assert [jar for jar in jars if "spark-sql-kafka" in jar]
    assert all(Path(jar).is_file() for jar in jars)
    packaged = connect({"host": "local"}, jars=None, options={"packages": "group:artifact:1"}).command("clean", "run-1")
    assert "--jars" not in packaged


@pytest.mark.parametrize("name", ["spark.hadoop.fs.s3a.secret.key", "spark.ssl.keyPassword", "spark.my.token"])
def test_a_secret_among_the_settings_is_refused(connect: Any, name: str) -> None:
    with pytest.raises(ValueError, match="command line") as refusal:
        connect({"host": "local"}, conf={name: SECRET})
    assert SECRET not in str(refusal.value)


def test_kafkas_settings_cannot_be_put_on_the_command_line(connect: Any) -> None:
    with pytest.raises(ValueError, match="command line"):
        connect({"host": "yarn"}, conf={f"spark.yarn.appMasterEnv.{KAFKA_VARIABLE}": KAFKA.to_json()})
    with pytest.raises(ValueError, match="env_vars"):
        connect({"host": "yarn"}, options={"env_vars": {KAFKA_VARIABLE: KAFKA.to_json()}})


def test_a_driver_on_the_cluster_needs_a_way_to_kafkas_settings(connect: Any) -> None:
    cluster = {"host": "yarn", "extra": {"deploy-mode": "cluster"}}
    with pytest.raises(PrerequisiteMissing, match=f"{KAFKA_VARIABLE}_FILE"):
        connect(cluster).command("clean", "run-1")
    told = connect(cluster, conf={f"spark.yarn.appMasterEnv.{KAFKA_VARIABLE}_FILE": "/etc/kafka.json"})
    assert option(told.command("clean", "run-1"), "--deploy-mode") == "cluster"


def test_a_missing_connection_is_an_error_and_not_yarn() -> None:
    with pytest.raises(AirflowNotFoundException):
        SparkJobHook("spark_nowhere")


@pytest.mark.parametrize("name", ["_resolve_connection", "_build_spark_submit_command", "_get_spark_binary_path"])
def test_the_spark_provider_still_has_what_is_built_upon(name: str) -> None:
    assert callable(getattr(SparkSubmitHook, name))


def test_a_launched_supervisor_has_a_session_of_its_own_and_none_of_our_streams(
    connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = connect({"host": "local"})
    # The supervisor ends at once for want of a broker's address; what it says goes to the log and nowhere else.
    monkeypatch.setattr(hook, "environment", lambda kafka: {**os.environ, KAFKA_VARIABLE: "{}"})
    log = tmp_path / "logs" / "run-1.log"
    pid = hook.launch("clean", "run-1", KAFKA, log)
    assert os.getsid(pid) == pid != os.getsid(0)
    os.waitpid(pid, 0)
    assert "bootstrap.servers" in log.read_text()
