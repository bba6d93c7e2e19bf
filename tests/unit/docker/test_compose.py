"""The Compose file, held against the Compose specification's own schema and against what the project is."""

import ast
import importlib.resources
import json
import re
import runpy
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from support.containers.compose_file import (
    FILE,
    FOLDER,
    REPOSITORY,
    command,
    mounts,
    option,
    read_compose,
    read_env_file,
)

PROFILES = {
    None: {"kafka", "spark-master", "spark-worker", "launcher", "customers", "airflow"},
    "worker": {"worker"},
    "redpanda": {"redpanda"},
    "object-store": {"object-store"},
    "monitoring": {"prometheus", "grafana"},
}

GIBIBYTES = {"256m": 0.25, "512m": 0.5, **{f"{number}g": float(number) for number in range(1, 17)}}


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    return dict(read_compose()["services"])


def schema() -> Any:
    vendored = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    return json.loads(vendored.read_text())


def constant(dag: str, name: str) -> Any:
    """Return a constant of a DAG's file, which is not imported."""
    for statement in ast.parse((REPOSITORY / "dags" / f"{dag}.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return ast.literal_eval(statement.value)
    raise LookupError(name)


@pytest.mark.parametrize("replaced", [False, True])
def test_the_file_meets_the_compose_schema(replaced: bool) -> None:
    jsonschema.validate(read_compose() if replaced else yaml.safe_load(FILE.read_text()), schema())


def test_every_service_has_a_health_check_a_limit_of_memory_and_a_pinned_image(
    services: dict[str, dict[str, Any]],
) -> None:
    for name, service in services.items():
        assert service["healthcheck"]["test"], name
        assert GIBIBYTES[service["mem_limit"]], name
        assert re.fullmatch(r"[\w/-]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_the_broker_is_the_release_that_the_local_services_run(services: dict[str, dict[str, Any]]) -> None:
    lock = (REPOSITORY / "provider" / "wasmline" / "local" / "kafka.lock").read_text()
    version = services["kafka"]["image"].partition(":")[2]
    assert f"org.apache.kafka:kafka_2.13:{version}" in lock


def test_the_images_are_the_projects_own_release(services: dict[str, dict[str, Any]]) -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["version"]["path"]
    release = (REPOSITORY / version).read_text()
    own = [service["image"] for service in services.values() if service["image"].startswith("wasmline/")]
    assert own
    assert all(f'"{image.partition(":")[2]}"' in release for image in own)


def test_each_profile_adds_its_services_and_no_other_service_waits_for_them(
    services: dict[str, dict[str, Any]],
) -> None:
    found: dict[str | None, set[str]] = {}
    for name, service in services.items():
        (profile,) = service.get("profiles", [None])
        found.setdefault(profile, set()).add(name)
        for other, condition in service.get("depends_on", {}).items():
            optional = services[other].get("profiles") not in (None, service.get("profiles"))
            assert condition == {"condition": "service_healthy", **({"required": False} if optional else {})}, name
    assert found == PROFILES


def test_ports_are_open_to_this_machine_alone_and_differ(services: dict[str, dict[str, Any]]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len({port.split(":")[1] for port in ports}) == len(ports)


def test_what_is_mounted_is_a_volume_or_a_file_of_the_repository(services: dict[str, dict[str, Any]]) -> None:
    sources = [source for service in services.values() for source in mounts(service).values()]
    volumes = {source for source in sources if not source.startswith(".")}
    assert volumes == set(read_compose()["volumes"])
    assert all((FOLDER / source).exists() for source in sources if source.startswith("."))


def test_kafka_keeps_its_data_in_its_volume(services: dict[str, dict[str, Any]]) -> None:
    kafka = services["kafka"]
    assert mounts(kafka)[kafka["environment"]["KAFKA_LOG_DIRS"]] == "kafka"


def test_every_part_that_keeps_or_reads_files_of_jobs_has_their_volume(services: dict[str, dict[str, Any]]) -> None:
    home = services["airflow"]["environment"]["WASMLINE_HOME"]
    assert {name for name, each in services.items() if home in mounts(each)} == {"airflow", "launcher", "spark-worker"}
    assert Path(option(services["launcher"], "--log-folder")).is_relative_to(home)
    for name in ("WASMLINE_REGISTRY", "WASMLINE_MODELS"):
        assert Path(services["airflow"]["environment"][name]).is_relative_to(home)


def test_each_variable_of_ours_is_read_by_the_code(services: dict[str, dict[str, Any]]) -> None:
    sources = [path.read_text() for room in ("dags", "provider") for path in (REPOSITORY / room).rglob("*.py")]
    given = {name for each in services.values() for name in each.get("environment", {}) if name.startswith("WASMLINE_")}
    assert given
    assert [name for name in given if not any(f'"{name}"' in source for source in sources)] == []


def test_both_demos_have_their_connections(services: dict[str, dict[str, Any]]) -> None:
    environment = services["airflow"]["environment"]
    prefix = "AIRFLOW_CONN_"
    found = {name.removeprefix(prefix): json.loads(environment[name]) for name in environment if prefix in name}
    kafka = {"bootstrap.servers": "kafka:9092"}
    assert found == {
        "KAFKA_DEFAULT": {"conn_type": "kafka", "extra": kafka},
        "REDPANDA": {"conn_type": "kafka", "extra": {"bootstrap.servers": "redpanda:9092"}},
        "WASMLINE_DEFAULT": {
            "conn_type": "wasmline",
            "extra": {
                "registry": "/var/lib/wasmline/registry",
                "models": "/var/lib/wasmline/models",
                "storage": "/var/lib/wasmline/storage",
            },
        },
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "spark://spark-master", "port": 7077},
        "CUSTOMERS": {"conn_type": "http", "host": "customers", "port": int(option(services["customers"], "--port"))},
    }
    for name in ("launcher", "airflow", "worker"):
        assert json.loads(services[name]["environment"]["WASMLINE_KAFKA_CONFIG"]) == kafka


def test_redpandas_file_puts_every_client_on_redpanda_and_the_stores_file_every_artifact_in_the_bucket() -> None:
    redpanda = read_compose(read_env_file("redpanda.env"))["services"]
    environment = redpanda["airflow"]["environment"]
    settings = json.loads(environment[f"AIRFLOW_CONN_{environment['WASMLINE_KAFKA_CONN_ID'].upper()}"])["extra"]
    for name in ("launcher", "airflow", "worker"):
        assert json.loads(redpanda[name]["environment"]["WASMLINE_KAFKA_CONFIG"]) == settings
    assert environment["WASMLINE_KAFKA_SERVER"] == settings["bootstrap.servers"]

    stored = read_compose(read_env_file("object-store.env"))["services"]
    environment, store = stored["airflow"]["environment"], stored["object-store"]
    (bucket,) = {Path(place).name for place in mounts(store)}
    for name in ("WASMLINE_REGISTRY", "WASMLINE_MODELS"):
        assert environment[name].startswith(f"s3://{bucket}/")
    assert environment["AWS_ENDPOINT_URL"] == f"http://object-store{option(store, '--port')}"
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), ("ROOT_ACCESS_KEY", "ROOT_SECRET_KEY")
    assert [environment[name] for name in keys[0]] == [store["environment"][name] for name in keys[1]]


def test_the_launcher_and_the_pool_that_the_dags_name_are_those_that_are_started(
    services: dict[str, dict[str, Any]],
) -> None:
    environment = services["airflow"]["environment"]
    assert option(services["launcher"], "--name") == environment["WASMLINE_LAUNCHER"]
    shell = command(services["airflow"])[-1]
    pool = re.search(r"airflow pools set (\w+) (\d+) ", shell)
    assert pool
    assert pool[1] == environment["WASMLINE_STREAM_POOL"]
    assert int(pool[2]) < int(environment["AIRFLOW__CORE__PARALLELISM"]), "other tasks have slots that no stream takes"


def test_endless_streams_of_both_demos_leave_cores_and_memory_to_a_training_and_a_run_that_catches_up(
    services: dict[str, dict[str, Any]],
) -> None:
    """A stream takes a core for each partition, one executor on one worker; other applications take the default."""
    worker, master = services["spark-worker"], services["spark-master"]
    default = int(master["environment"]["SPARK_MASTER_OPTS"].rpartition("=")[2])
    streams = [constant("delivery_pipeline", "PARTITIONS"), constant("enrich_over_http", "PARTITIONS")]
    assert sum(streams) + 2 * default <= int(worker["environment"]["SPARK_WORKER_CORES"])
    executors = GIBIBYTES[worker["environment"]["SPARK_WORKER_MEMORY"]]
    assert executors >= len(streams) + 2, "an executor has 1 GiB"
    assert GIBIBYTES[worker["mem_limit"]] >= 2 * executors, "each executor has Python processes beside it"


def test_the_dags_find_their_registries_and_storage_where_their_assets_say(
    services: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = services["airflow"]["environment"]
    monkeypatch.setenv("WASMLINE_HOME", environment["WASMLINE_HOME"])
    settings = runpy.run_path(str(REPOSITORY / "dags" / "demo_settings.py"))
    assert json.loads(environment["AIRFLOW_CONN_WASMLINE_DEFAULT"]) == settings["WASMLINE_CONNECTION"]


def test_docker_itself_accepts_the_file() -> None:
    if shutil.which("docker") is None:
        pytest.skip("no docker command on this machine")
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    if plugin.returncode != 0:
        pytest.skip("docker has no compose plugin on this machine")
    done = subprocess.run(
        ["docker", "compose", "-f", str(FILE), "config", "--quiet"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
