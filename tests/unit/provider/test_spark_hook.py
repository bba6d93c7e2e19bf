"""The spark-submit command of a job: what is on it, and what never is."""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks import spark_submit as spark_submit_hook
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowNotFoundException

from wasmline import local
from wasmline.errors import ArtifactUnavailable, PrerequisiteMissing
from wasmline.kafka import KafkaConfig
from wasmline.kafka.config import VARIABLE as KAFKA_VARIABLE
from wasmline_provider.hooks.object_store import ObjectStoreLogin
from wasmline_provider.hooks.spark import SUBMISSION, UPLOAD, SparkJobHook
from wasmline_provider.operators.stream import SparkStreamOperator

PAGE = Path(__file__).resolve().parents[3] / "docs" / "executors.md"

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


def test_a_login_to_the_object_store_is_in_the_environment_alone(
    connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the worker")
    login = ObjectStoreLogin(access_key="key", secret_key="hunter3", region="eu-test-1")
    hook = connect({"host": "local[2]"})
    with caplog.at_level(logging.DEBUG):
        environment = hook.environment(KAFKA, login)
        command = hook.command("clean", "run-1")
    assert (environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]) == ("key", "hunter3")
    assert "AWS_SESSION_TOKEN" not in environment
    assert hook.environment(KAFKA)["AWS_SESSION_TOKEN"] == "of the worker"
    for text in (" ".join(command), repr(vars(hook)), repr(login), caplog.text):
        assert "hunter3" not in text


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


YARN_FILE = {f"spark.yarn.appMasterEnv.{KAFKA_VARIABLE}_FILE": "/etc/kafka.json"}
SECRET_KEY = {f"spark.kubernetes.driver.secretKeyRef.{KAFKA_VARIABLE}": "kafka:config"}
IN_IMAGE = "local:///opt/wasmline/spark/main.py"
KUBERNETES = [
    {"host": "k8s://https://api.cluster", "port": 6443, "extra": {"deploy-mode": "cluster", "namespace": "spark"}},
    {"host": "k8s://https://api.cluster:6443", "extra": {"deploy-mode": "cluster", "namespace": "spark"}},
]


@pytest.fixture
def kubernetes_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for the client of Kubernetes, which the provider's hook wants to be there and building a command not."""
    monkeypatch.setattr(spark_submit_hook, "kube_client", object(), raising=False)


def test_a_kubernetes_master_without_its_client_is_a_named_error(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(spark_submit_hook, "kube_client", raising=False)
    with pytest.raises(PrerequisiteMissing, match="pip install apache-airflow-providers-cncf-kubernetes"):
        connect(KUBERNETES[0])


def settings(command: list[str]) -> dict[str, str]:
    """Return the values of --conf."""
    pairs = [command[at + 1] for at, each in enumerate(command) if each == "--conf"]
    return dict(each.split("=", 1) for each in pairs)


@pytest.mark.usefixtures("kubernetes_client")
@pytest.mark.parametrize("master", KUBERNETES, ids=["port of its own", "port in the host"])
def test_a_driver_on_kubernetes_is_submitted_with_files_of_its_image_and_a_secrets_name(
    connect: Any, master: dict[str, Any]
) -> None:
    jars = "local:///opt/jars/kafka.jar"
    hook = connect(master, conf={**SECRET_KEY, "spark.executor.instances": "2"}, jars=jars, application=IN_IMAGE)
    assert hook.on_cluster
    command = hook.command("clean", "run-1")
    assert option(command, "--master") == "k8s://https://api.cluster:6443"
    assert option(command, "--deploy-mode") == "cluster"
    assert option(command, "--jars") == jars
    assert command[-5:] == [IN_IMAGE, "--job", "clean", "--run", "run-1"]
    assert settings(command) == {
        **SECRET_KEY,
        "spark.executor.instances": "2",
        "spark.kubernetes.namespace": "spark",
        SUBMISSION["k8s"]: "false",
    }
    assert SECRET not in " ".join(command)


@pytest.mark.usefixtures("kubernetes_client")
def test_the_stream_on_kubernetes_of_the_page_is_submitted(connect: Any) -> None:
    section = PAGE.read_text().partition("\n## Deploy mode cluster\n")[2]
    connection = json.loads(section.partition("```json\n")[2].partition("```")[0])
    names: dict[str, Any] = {"SparkStreamOperator": SparkStreamOperator}
    exec(section.partition("```python\n")[2].partition("```")[0], names)  # noqa: S102
    made = names["clean"]
    hook = connect(connection, conf=made.conf, jars=made.jars, options=made.spark_options, application=made.application)
    command = hook.command(made.job, "run-1")
    assert option(command, "--master") == "k8s://https://api.cluster:6443"
    assert option(command, "--jars").count("local:///") == 6
    assert settings(command) == {
        **made.conf,
        "spark.kubernetes.namespace": "spark",
        SUBMISSION["k8s"]: "false",
    }


@pytest.mark.usefixtures("kubernetes_client")
def test_a_driver_on_kubernetes_needs_files_that_it_can_read(connect: Any) -> None:
    with pytest.raises(PrerequisiteMissing, match=r"main\.py, the connector's jars, .*local://.*upload") as refused:
        connect(KUBERNETES[0], conf=SECRET_KEY, jars=None).require_deploy_mode()
    assert not refused.value.retryable
    with pytest.raises(PrerequisiteMissing, match=r"cannot read /dags/functions\.py, on"):
        connect(
            KUBERNETES[0],
            conf=SECRET_KEY,
            jars="local:///k.jar",
            application=IN_IMAGE,
            options={"py_files": "/dags/functions.py"},
        ).require_deploy_mode()
    uploaded = connect(KUBERNETES[0], conf={**SECRET_KEY, UPLOAD: "s3a://bucket/uploads"})
    assert Path(uploaded.command("clean", "run-1")[-5]).name == "main.py"


@pytest.mark.parametrize("master", [{"host": "yarn"}, {"host": "yarn", "port": None, "schema": ""}])
def test_a_driver_on_yarn_is_submitted_with_files_that_yarn_ships(connect: Any, master: dict[str, Any]) -> None:
    cluster = {**master, "extra": {"deploy-mode": "cluster", "queue": "night"}}
    options = {"py_files": "/dags/functions.py", "num_executors": 3}
    command = connect(cluster, conf=YARN_FILE, options=options).command("clean", "run-1")
    assert option(command, "--master") == "yarn"
    assert option(command, "--deploy-mode") == "cluster"
    assert option(command, "--queue") == "night"
    assert option(command, "--py-files") == "/dags/functions.py"
    assert option(command, "--num-executors") == "3"
    assert settings(command) == {**YARN_FILE, SUBMISSION["yarn"]: "false"}
    assert Path(command[-5]).read_text().startswith('"""The application')


def test_a_submission_that_waits_for_the_driver_may_be_asked_for(connect: Any) -> None:
    cluster = {"host": "yarn", "extra": {"deploy-mode": "cluster"}}
    command = connect(cluster, conf={**YARN_FILE, SUBMISSION["yarn"]: "true"}).command("clean", "run-1")
    assert settings(command)[SUBMISSION["yarn"]] == "true"


@pytest.mark.parametrize(
    "master", [{"host": "spark://master", "port": 7077}, {"host": "spark://master:7077"}, {"host": "local[2]"}]
)
def test_a_master_that_runs_no_python_driver_is_refused(connect: Any, master: dict[str, Any]) -> None:
    hook = connect({**master, "extra": {"deploy-mode": "cluster"}}, conf=YARN_FILE)
    with pytest.raises(PrerequisiteMissing, match="runs no Python driver in deploy mode cluster"):
        hook.require_deploy_mode()
    with pytest.raises(PrerequisiteMissing, match="runs no Python driver in deploy mode cluster"):
        hook.command("clean", "run-1")


@pytest.mark.parametrize(
    "given", [{"options": {"deploy_mode": "cluster"}}, {"conf": {"spark.submit.deployMode": "cluster"}}], ids=str
)
def test_a_deploy_mode_counts_wherever_spark_submit_takes_it_from(connect: Any, given: dict[str, Any]) -> None:
    hook = connect({"host": "spark://master", "port": 7077}, **given)
    with pytest.raises(PrerequisiteMissing, match="runs no Python driver in deploy mode cluster"):
        hook.require_deploy_mode()
    hook = connect({"host": "spark://master", "port": 7077, "extra": {"deploy-mode": "client"}}, **given)
    assert hook.on_cluster == ("options" in given)


def test_a_launcher_is_given_the_options_without_its_own_files_and_secrets(connect: Any) -> None:
    hook = connect(
        {"host": "spark://master", "port": 7077},
        jars=None,
        conf={"spark.ui.enabled": "false"},
        options={"driver_memory": "1g", "py_files": "/dags/functions.py"},
    )
    assert hook.launch_arguments() == [
        "--master", "spark://master:7077",
        "--conf", "spark.ui.enabled=false",
        "--py-files", "/dags/functions.py",
        "--driver-memory", "1g",
        "--name", "wasmline",
    ]  # fmt: skip


@pytest.mark.usefixtures("kubernetes_client")
def test_a_launcher_is_not_needed_for_a_driver_on_the_cluster(connect: Any) -> None:
    with pytest.raises(PrerequisiteMissing, match="leave out the launcher"):
        connect(KUBERNETES[0], conf=SECRET_KEY).launch_arguments()


def test_a_keytab_of_the_connection_is_not_the_launchers(connect: Any) -> None:
    keytab = {"principal": "user@REALM", "keytab": "AAAA"}
    with pytest.raises(PrerequisiteMissing, match="keytab"):
        connect({"host": "yarn", "extra": keytab}).launch_arguments()
    own = connect({"host": "yarn"}, options={"principal": "user@REALM", "keytab": "/etc/user.keytab"})
    assert option(own.launch_arguments(), "--keytab") == "/etc/user.keytab"


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
    monkeypatch.setattr(hook, "environment", lambda kafka, login: {**os.environ, KAFKA_VARIABLE: "{}"})
    log = tmp_path / "logs" / "run-1.log"
    pid = hook.start_driver("clean", "run-1", KAFKA, log)
    assert os.getsid(pid) == pid != os.getsid(0)
    os.waitpid(pid, 0)
    assert "bootstrap.servers" in log.read_text()


def test_a_handler_s_file_is_the_same_in_another_folder_and_another_one_with_other_contents(
    connect: Any, tmp_path: Path
) -> None:
    def digest(folder: str, text: str) -> str:
        file = tmp_path / folder / "functions.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return str(connect({"host": "local"}, options={"py_files": str(file)}).settings_digest())

    assert digest("bundle-1", "a") == digest("bundle-2", "a") != digest("bundle-2", "b")


def test_a_driver_that_runs_here_is_another_one_with_another_login_but_not_with_another_secret(connect: Any) -> None:
    def digest(host: str = "local", launcher: str | None = None, **fields: str) -> str:
        login = ObjectStoreLogin(**{"access_key": "a", "secret_key": "s", **fields})
        return str(connect({"host": host}).settings_digest(launcher, login))

    assert digest() == digest(secret_key="t")
    assert len({digest(), digest(access_key="b"), digest(endpoint_url="http://s3:1"), digest(region="eu")}) == 4
    assert digest(session_token="t") == digest(session_token="u", access_key="b"), "temporary keys"
    assert digest(launcher="l") == digest(launcher="l", access_key="b")


def test_what_a_driver_needs_here_is_there_before_it_is_ordered(
    connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable() -> list[Path]:
        raise ArtifactUnavailable("no jars")

    hook = connect({"host": "local"}, jars=None)
    hook.prepare(tmp_path / "job" / "run.log")
    assert (tmp_path / "job").is_dir()
    monkeypatch.setattr(local, "connector_jars", unavailable)
    hook.command("clean", "run-1")  # it has them
    with pytest.raises(ArtifactUnavailable):
        connect({"host": "local"}, jars=None).prepare(tmp_path / "run.log")


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.hadoop.fs.azure.account.key.x.dfs.core.windows.net": SECRET},
        {"spark.hadoop.fs.gs.auth.service.account.private.key": SECRET},
        {"spark.driver.extraJavaOptions": f"-Djavax.net.ssl.trustStorePassword={SECRET}"},
        {"spark.jars.repositories": f"https://user:{SECRET}@repository/maven"},
    ],
)
def test_a_secret_by_another_name_or_in_a_value_is_refused_without_saying_it(
    connect: Any, conf: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match="secret") as refused:
        connect({"host": "local"}, conf=conf)
    assert SECRET not in str(refused.value)


def test_spark_s_own_redaction_is_no_secret(connect: Any) -> None:
    connect({"host": "local"}, conf={"spark.sql.redaction.string.regex": r"(?i)(password=)\S+"})


def test_a_repository_s_password_among_the_options_is_refused(connect: Any) -> None:
    with pytest.raises(ValueError, match=r"^repositories looks like it contains a secret"):
        connect({"host": "local"}, options={"repositories": f"https://user:{SECRET}@repository/maven"})
