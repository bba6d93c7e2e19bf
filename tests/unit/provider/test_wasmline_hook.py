"""The ``wasmline`` connection: whose URL is used, what is wrong with it in one sentence, and where its login goes."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from airflow.sdk import DAG, Connection
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSecretsBackendAccessDenied,
)
from airflow.serialization.serialized_objects import DagSerialization

from support.gated_models import METRICS, publish_gated
from support.s3_in_memory import REGION, S3Server, s3_server
from wasmline.documents import plain
from wasmline.errors import InvalidLocation, InvalidSpec
from wasmline.registry import FilesystemRegistry
from wasmline.training import GatePolicy, ModelRegistry, PromotionLog
from wasmline_provider.hooks import wasmline as hooks
from wasmline_provider.hooks.object_store import ObjectStoreLogin
from wasmline_provider.hooks.wasmline import Locations, WasmlineHook
from wasmline_provider.operators.build import WasmPublishOperator
from wasmline_provider.operators.deploy import WasmDeployOperator
from wasmline_provider.operators.model import PromoteModelOperator, TrainModelOperator
from wasmline_provider.operators.stream import SparkStreamOperator
from wasmline_provider.triggers.retrain import RetrainTrigger

Connect = Callable[..., WasmlineHook]

SECRET = "hunter2-of-the-store"
EXTRA: dict[str, Any] = {"registry": "s3://b/registry", "models": "/models", "storage": "s3a://b/wasmline"}
KEYS = {"conn_type": "aws", "login": "writer", "password": SECRET, "extra": {"region_name": REGION}}


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Make the connection ``wasmline_default``, and ``store``, and return the hook of the first."""

    def connect(extra: dict[str, Any], store: dict[str, Any] | None = None, **fields: Any) -> WasmlineHook:
        connection = {"conn_type": "wasmline", "extra": extra, **fields}
        monkeypatch.setenv("AIRFLOW_CONN_WASMLINE_DEFAULT", json.dumps(connection))
        if store is not None:
            monkeypatch.setenv("AIRFLOW_CONN_STORE", json.dumps(store))
        return WasmlineHook()

    return connect


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with s3_server({"writer": SECRET, "reader": "reads"}, readers=frozenset({"reader"})) as server:
        yield server


def located(hook: WasmlineHook, **given: str | None) -> Locations:
    """Return what the hook locates, the same on an event loop."""
    found = hook.locate(**given)
    assert asyncio.run(hook.alocate(**given)) == found
    return found


def without_connection(hook: WasmlineHook, monkeypatch: pytest.MonkeyPatch) -> WasmlineHook:
    """Remove the default connection, as a passing error of Airflow does."""
    monkeypatch.delenv("AIRFLOW_CONN_WASMLINE_DEFAULT")
    return hook


def refused(hook: WasmlineHook, error: type[Exception], **given: str | None) -> str:
    """Return the message with which the hook refuses, the same on an event loop."""
    with pytest.raises(error) as caught:
        hook.locate(**given)
    with pytest.raises(error) as also:
        asyncio.run(hook.alocate(**given))
    assert str(caught.value) == str(also.value)
    return str(caught.value)


def test_a_location_that_is_given_wins_and_another_one_is_the_connection_s(connect: Connect) -> None:
    hook = connect(EXTRA)
    assert located(hook, registry="/mine", models=None, storage="") == Locations(**{**EXTRA, "registry": "/mine"})
    assert hook.get_conn() == asyncio.run(hook.aget_conn()) == Locations(**EXTRA)


def test_without_the_default_connection_only_what_is_given_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert located(WasmlineHook(), registry="/mine", models="file:///m") == Locations(
        registry="/mine", models="file:///m"
    )
    assert "login" not in capsys.readouterr().out
    assert located(WasmlineHook(), registry="s3://mine/r") == Locations(registry="s3://mine/r")
    told = "Airflow has no connection wasmline_default for this task: s3://mine/r opened with the machine's login"
    assert capsys.readouterr().out.count(told) == 1


def test_a_default_connection_that_was_read_is_not_missing_later(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = connect({**EXTRA, "object_store_conn_id": "store"}, KEYS)
    assert located(hook, models="s3://mine/m").login
    told = refused(without_connection(hook, monkeypatch), AirflowNotFoundException, models="s3://mine/m")
    assert told.startswith("Airflow has no connection wasmline_default for this task: add one")


def test_a_connection_that_is_missing_is_an_error_if_it_or_its_location_is_meant() -> None:
    assert refused(WasmlineHook("nowhere"), AirflowNotFoundException, registry="/mine", models=None, storage=None) == (
        "models and storage not given, and Airflow has no connection nowhere for this task: add one of type wasmline, "
        "or set models and storage"
    )
    assert refused(WasmlineHook("nowhere"), AirflowNotFoundException, registry="/mine") == (
        "Airflow has no connection nowhere for this task: add one of type wasmline, correct wasmline_conn_id, or leave "
        "it out for the login that the machines have"
    )


def test_a_connection_that_the_task_may_not_read_is_an_error_also_where_each_url_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def get(conn_id: str) -> Connection:
        raise AirflowSecretsBackendAccessDenied(conn_id)

    async def aget(conn_id: str) -> Connection:
        return get(conn_id)

    monkeypatch.setattr(WasmlineHook, "get_connection", staticmethod(get))
    monkeypatch.setattr(WasmlineHook, "aget_connection", staticmethod(aget))
    assert refused(WasmlineHook(), PermissionError, registry="s3://mine/r") == "wasmline_default"


@pytest.mark.parametrize(
    ("extra", "fields", "told"),
    [
        ({}, {}, "registry is not given, and connection wasmline_default has none: set one of them"),
        ({"registry": None}, {}, "registry is not given, and connection wasmline_default has none: set one of them"),
        (EXTRA, {"conn_type": "http"}, "connection wasmline_default is of type http, not wasmline"),
        (
            {"registri": "/r"},
            {},
            (
                "connection wasmline_default has no field 'registri': it has registry, models, storage, "
                "object_store_conn_id"
            ),
        ),
        (
            {"models": "models"},
            {},
            (
                "connection wasmline_default: models is 'models', neither an absolute folder nor a URL: it would be "
                "another folder on each machine"
            ),
        ),
    ],
)
def test_what_is_wrong_with_a_connection_is_one_sentence(
    connect: Connect, extra: dict[str, Any], fields: dict[str, Any], told: str
) -> None:
    assert refused(connect(extra, **fields), InvalidLocation, registry=None) == told


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ({"conn_type": "google_cloud_platform"}, "connection store is of type google_cloud_platform, and object store"),
        ({**KEYS, "extra": {"role_arn": "arn:x"}}, "connection store has role_arn, and only keys, aws_session_token, "),
        ({**KEYS, "password": ""}, "connection store has one of the access key and the secret key: set both, or none"),
    ],
)
def test_a_login_that_cannot_be_carried_is_refused(connect: Connect, store: dict[str, Any], told: str) -> None:
    hook = connect({**EXTRA, "object_store_conn_id": "store"}, store)
    assert refused(hook, InvalidLocation, registry="/mine").startswith(told)


def test_a_login_that_is_missing_is_an_error_also_where_each_url_is_given(connect: Connect) -> None:
    told = refused(connect({"object_store_conn_id": "nowhere"}), AirflowNotFoundException, registry="s3://mine/r")
    assert told == (
        "connection wasmline_default names nowhere as object_store_conn_id, and Airflow has no such connection"
    )


def test_a_login_is_read_from_the_fields_or_from_the_extra(connect: Connect) -> None:
    extra = {"aws_access_key_id": "writer", "aws_secret_access_key": SECRET, "region_name": REGION}
    for store in (KEYS, {"conn_type": "aws", "extra": extra}):
        login = connect({"object_store_conn_id": "store"}, store).get_conn().login
        assert login == ObjectStoreLogin(access_key="writer", secret_key=SECRET, region=REGION)


def test_a_field_of_a_login_without_a_value_is_none(connect: Connect) -> None:
    store = {**KEYS, "extra": {"role_arn": "", "profile_name": None, "region_name": REGION}}
    login = connect({"object_store_conn_id": "store"}, store).get_conn().login
    assert login == ObjectStoreLogin(access_key="writer", secret_key=SECRET, region=REGION)


def test_no_secret_is_shown_or_part_of_a_dag(connect: Connect) -> None:
    hook = connect({**EXTRA, "object_store_conn_id": "store"}, {**KEYS, "extra": {"aws_session_token": SECRET}})
    with DAG("jobs", schedule=None) as dag:
        stream = SparkStreamOperator(task_id="stream", job="j", transform="t")
    assert stream.locations().login
    for text in (repr(hook.get_conn()), repr(vars(hook)), repr(vars(stream)), str(DagSerialization.to_dict(dag))):
        assert SECRET not in text
    assert SECRET not in repr(stream.spec({}))


def test_a_driver_has_the_login_as_its_own_environment_and_none_of_the_worker_s() -> None:
    kept = {"PATH": "/bin", "AWS_CA_BUNDLE": "/ca.pem"}
    names = ("AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL_S3")
    theirs = dict.fromkeys((*names, "FSSPEC_S3_TOKEN"), "theirs")
    worker = {**kept, **theirs, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}
    login = ObjectStoreLogin(access_key="writer", secret_key=SECRET, endpoint_url="http://s3:1", region=REGION)
    made = login.environment(worker)
    fsspec_variables = {name: value for name, value in made.items() if name.startswith("FSSPEC_")}
    assert {name: value for name, value in made.items() if name not in fsspec_variables} == {
        **kept,
        "AWS_ACCESS_KEY_ID": "writer",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": "http://s3:1",
        "AWS_ENDPOINT_URL_S3": "http://s3:1",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
    }
    configured = {"s3": {"key": "theirs", "token": "theirs"}}  # in a file of the worker's user
    fsspec.config.set_conf_env(configured, fsspec_variables)
    assert configured == {"s3": login.driver_options()["s3"]}
    assert ObjectStoreLogin(region=REGION).environment(worker).items() >= worker.items(), "keys of the machine"


TRAINING: dict[str, Any] = {
    "job": "j",
    "model": "m",
    "topic": "t",
    "identity": "id",
    "target": "y",
    "features": ["x"],
    "fields": {"id": "string", "x": "double", "y": "double"},
}


def test_a_job_takes_its_locations_from_the_connection_when_it_runs(connect: Connect) -> None:
    stream = SparkStreamOperator(task_id="stream", job="j", transform="t")
    train = TrainModelOperator(task_id="train", **TRAINING)
    own = TrainModelOperator(task_id="own", storage="/s", models="{{ '' }}", wasmline_conn_id="other", **TRAINING)
    with pytest.raises(AirflowNotFoundException, match="storage not given, and Airflow has no connection wasmline_def"):
        stream.spec({})
    own.models = ""  # as Airflow renders it
    with pytest.raises(AirflowNotFoundException, match="models not given, and Airflow has no connection other"):
        own.spec({})
    connect(EXTRA)
    spec = train.spec({})
    assert (stream.spec({}).storage, spec.storage) == ("s3a://b/wasmline", "s3a://b/wasmline")
    assert spec.train
    assert spec.train.models == "/models"
    given = TrainModelOperator(task_id="given", storage="/s", models="/m", **TRAINING).spec({})
    assert (given.storage, given.train and given.train.models) == ("/s", "/m")


@pytest.mark.parametrize("wrong", [{"storage": ""}, {"models": " "}])
def test_a_location_that_is_empty_is_refused_when_the_dag_is_parsed(wrong: dict[str, str]) -> None:
    with pytest.raises(Exception, match=f"^{next(iter(wrong))} is .*: it must be set, as text"):
        TrainModelOperator(task_id="train", **{**TRAINING, **wrong})


def test_a_task_without_a_connection_may_be_tried_again_and_one_without_a_location_fails_at_once(
    connect: Connect,
) -> None:
    deploy = WasmDeployOperator(task_id="deploy", name="t")
    with pytest.raises(AirflowNotFoundException, match="registry not given"):
        deploy.execute({})
    connect({"models": "/models"})
    with pytest.raises(AirflowFailException, match=r"^InvalidLocation: registry is not given, and"):
        deploy.execute({})


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ({}, {"registry"}),
        ({"champion_only": "False"}, {"registry"}),
        ({"champion_only": True}, {"registry", "models"}),
        ({"models": "/ms"}, {"registry", "models"}),
        ({"models": "None"}, {"registry"}),
        ({"models": "None", "champion_only": "None"}, {"registry"}),
        ({"models": "/ms", "champion_only": "True"}, {"registry", "models"}),
    ],
)
def test_a_deployment_needs_the_models_only_for_a_champion(
    connect: Connect, arguments: dict[str, Any], needed: set[str]
) -> None:
    deploy = WasmDeployOperator(task_id="deploy", name="t", **arguments)
    for name in needed:
        connect(dict.fromkeys(needed - {name}, "/"))
        if arguments.get(name) is None:
            with pytest.raises(InvalidLocation, match=f"^{name} is not given"):
                deploy._locations()
    connect(dict.fromkeys(needed, "/"))
    assert deploy._locations().registry == "/"


def test_models_and_any_version_at_once_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="models is given and champion_only is False: leave out one of them"):
        WasmDeployOperator(task_id="deploy", name="t", models="/m", champion_only=False)
    deploy = WasmDeployOperator(task_id="deploy", name="t", models="{{ params.m }}", champion_only="{{ params.c }}")
    deploy.models, deploy.champion_only = "/m", "False"  # as Airflow renders them
    with pytest.raises(AirflowFailException, match="models is given and champion_only is False"):
        deploy.execute({})


def test_a_trigger_takes_the_models_from_the_connection_or_as_they_are_given(connect: Connect) -> None:
    connect(EXTRA)
    for models, found in ((None, "/models"), ("s3://mine/models", "s3://mine/models")):
        trigger = RetrainTrigger(model="m", topic="t", models=models, new_records=1)
        again = RetrainTrigger(**json.loads(json.dumps(trigger.serialize()[1])))
        assert asyncio.run(again.locations()).models == found
    with pytest.raises(Exception, match="models is '': it must be set"):
        RetrainTrigger(model="m", topic="t", models="", new_records=1)


def press_button(hook: WasmlineHook) -> tuple[bool, str]:
    """Return the answer of the test button: Airflow makes the hook of the connection's type itself."""
    connection = hook.get_connection(hook.wasmline_conn_id)
    transient = Connection(conn_id="transient", conn_type=connection.conn_type, extra=connection.extra)
    return transient.test_connection()


def test_the_button_says_of_each_folder_what_can_be_done_with_it(connect: Connect, tmp_path: Path) -> None:
    folders = {name: f"{tmp_path}/{name}" for name in ("registry", "models", "storage")}
    FilesystemRegistry(folders["registry"]).publish("t", "1.0.0", b"\0asm")
    assert press_button(connect(folders)) == (
        True,
        (
            f"Registry {tmp_path}/registry: can be read; modules: 1. "
            f"Models {tmp_path}/models: can be read and written; models: 0. "
            f"Storage {tmp_path}/storage: can be read and written."
        ),
    )
    assert list((tmp_path / "storage").iterdir()) == []
    (tmp_path / "models").rmdir()
    (tmp_path / "models").write_text("no folder")
    is_good, told = press_button(connect(folders))
    assert not is_good
    assert f"Models {tmp_path}/models: the registry at {tmp_path}/models refused: Not a directory; see models." in told


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ({}, "The connection has none of registry, models, storage: set those that your DAGs use."),
        ({"registry": "r"}, "this connection: registry is 'r', neither an absolute folder nor a URL: it would be"),
        ({"object_store_conn_id": "nowhere"}, "this connection names nowhere as object_store_conn_id, and Airflow has"),
        ({"models": "nowhere://m"}, "Models nowhere://m: not tried: a test opens a folder, or a URL of file, s3, "),
        ({"registry": "http://inside/r"}, "Registry http://inside/r: not tried: a test opens a folder, or a URL of "),
        ({"models": "simplecache::s3://b/m"}, "Models simplecache::s3://b/m: not tried: a test opens a folder, or a "),
        ({"storage": "s3://b/s"}, "Storage s3://b/s: Hadoop's client of S3 opens s3a:// alone: write s3a://b/s."),
        ({"storage": "memory://s"}, "Storage memory://s: memory://s is a URL of fsspec alone, which Spark"),
        ({"storage": "zip://s::s3a://b"}, "Storage zip://s::s3a://b: zip://s::s3a://b is a URL of fsspec alone, which"),
    ],
)
def test_the_button_says_what_is_wrong(connect: Connect, extra: dict[str, Any], told: str) -> None:
    is_good, found = press_button(connect(extra))
    assert not is_good
    assert found.startswith(told)


def test_a_storage_that_only_spark_opens_is_not_tried(connect: Connect) -> None:
    told = (
        "Storage hdfs://name/jobs: not tried: a test opens a folder, or a URL of file, s3, s3a, gs, abfs, abfss, and "
        "Spark may open others."
    )
    assert press_button(connect({"storage": "hdfs://name/jobs"})) == (True, told)


def test_the_button_gives_up_a_store_that_does_not_answer(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(hooks, "TEST_TIMEOUT_S", 0.0)
    monkeypatch.setattr(hooks, "_test_of", lambda name, at: answer.wait)
    is_good, told = connect({"models": "/models"}).test_connection()
    answer.set()
    assert (is_good, told) == (False, "Models /models: no answer in 0 s.")


ON_S3 = {"registry": "s3://bucket/registry", "models": "s3://bucket/models", "storage": "s3a://bucket/wasmline"}


def store_of(server: S3Server, **fields: Any) -> dict[str, Any]:
    return {**KEYS, "extra": {"endpoint_url": server.url, "region_name": REGION}, **fields}


def test_the_button_logs_in_to_the_object_store(connect: Connect, s3: S3Server) -> None:
    extra = {**ON_S3, "object_store_conn_id": "store"}
    assert press_button(connect(extra, store_of(s3))) == (
        True,
        (
            "Registry s3://bucket/registry: can be read; modules: 0. "
            "Models s3://bucket/models: can be read and written; models: 0. "
            "Storage s3a://bucket/wasmline: can be read and written."
        ),
    )
    assert list(s3.buckets["bucket"]) == ["models/.create_probe"]


def test_the_button_needs_no_right_to_delete_and_leaves_no_more_than_one_file_of_each(
    connect: Connect, s3: S3Server
) -> None:
    s3.undeletable = True
    for _ in range(2):
        is_good, told = press_button(connect({**ON_S3, "object_store_conn_id": "store"}, store_of(s3)))
        assert is_good
        assert "Models s3://bucket/models: can be read and written; models: 0." in told
        assert "can be read and written, but bucket/wasmline/.wasmline_probe cannot be removed: " in told
        assert told.endswith("; Spark removes files of checkpoints.")
    assert sorted(s3.buckets["bucket"]) == ["models/.create_probe", "wasmline/.wasmline_probe"]


@pytest.mark.parametrize(
    ("extra", "keys", "told"),
    [
        (ON_S3, {"password": "wrong"}, "refused: the secret key is not that of the access key: check "),
        (ON_S3, {"login": "nobody"}, "the registry at s3://bucket/models refused: the access key is unknown: check "),
        (
            ON_S3,
            {"login": "reader", "password": "reads"},
            (
                "Registry s3://bucket/registry: can be read; modules: 0. "
                "Models s3://bucket/models: the registry at s3://bucket/models refused: access is denied: check the "
                "keys of the connection that is named as object_store_conn_id, and that they may list"
            ),
        ),
        (
            {"storage": "s3a://none/x"},
            {},
            "Storage s3a://none/x: s3a://none/x cannot be written to: there is no such bucket: create it",
        ),
    ],
)
def test_the_button_says_what_the_object_store_refuses(
    connect: Connect, s3: S3Server, extra: dict[str, Any], keys: dict[str, Any], told: str
) -> None:
    is_good, found = press_button(connect({**extra, "object_store_conn_id": "store"}, store_of(s3, **keys)))
    assert not is_good
    assert told in found
    assert SECRET not in found
    assert s3.buckets == {"bucket": {}}, "no bucket is created"


def test_no_login_of_fsspec_s_own_configuration_is_mixed_with_that_of_the_connection(
    connect: Connect, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fsspec.config.conf, "s3", {"key": "theirs", "secret": "theirs", "token": "theirs"})
    hook = connect({"registry": "s3://bucket/registry", "object_store_conn_id": "store"}, store_of(s3))
    assert press_button(hook) == (True, "Registry s3://bucket/registry: can be read; modules: 0.")


def test_an_operator_works_on_an_object_store_with_the_connection_alone(connect: Connect, s3: S3Server) -> None:
    hook = connect({**ON_S3, "object_store_conn_id": "store"}, store_of(s3))
    with hook.locate(models=None).opened() as at:
        (version,) = publish_gated(at.models, 3)
        promotions = PromotionLog(at.models)
    trained = {
        "model": "eta",
        "version": version,
        "decision": {"decision": "promote", "reason": "no champion yet"},
        "champion": None,
        "champion_metrics": None,
        "metrics": plain(METRICS),
        "policy": plain(GatePolicy()),
        "run": "run-1",
    }
    context: Any = {"dag_run": SimpleNamespace(triggering_user_name=None)}
    assert PromoteModelOperator(task_id="one", trained=trained).execute(context)["live"] == version
    assert promotions.champion("eta") == version, "what was opened stays logged in"
    connect({**ON_S3, "object_store_conn_id": "store"}, store_of(s3, password="wrong"))
    with pytest.raises(Exception, match="the registry at s3://bucket/models refused") as caught:
        PromoteModelOperator(task_id="one", trained=trained).execute(context)
    assert SECRET not in str(caught.value)


def test_a_driver_s_environment_logs_it_in_to_the_object_store(
    connect: Connect, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = connect({**ON_S3, "object_store_conn_id": "store"}, store_of(s3)).get_conn().login
    assert login
    for name, value in login.environment({}).items():
        monkeypatch.setenv(name, value)
    FilesystemRegistry("s3://bucket/registry").publish("t", "1.0.0", b"\0asm")
    assert any(key.startswith("registry/modules/t/1.0.0/") for key in s3.buckets["bucket"])
    assert ModelRegistry("s3://bucket/models").names() == []


def test_a_publication_needs_no_registry_to_be_parsed_and_one_before_it_builds() -> None:
    publish = WasmPublishOperator(task_id="publish", project="/no/such/project")
    assert (publish.registry, publish.wasmline_conn_id) == (None, "wasmline_default")
    with pytest.raises(AirflowNotFoundException, match="registry not given"):
        publish.execute({})
