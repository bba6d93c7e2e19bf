"""The Compose file, held against the Compose specification's own schema and against what the project pins."""

import importlib.resources
import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

REPOSITORY = Path(__file__).parents[3]
FILE = REPOSITORY / "docker" / "compose.yaml"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load(FILE.read_text()))


def test_the_file_meets_the_compose_schema(compose: dict[str, Any]) -> None:
    vendored = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json"
    jsonschema.validate(compose, json.loads(vendored.read_text()))


def test_every_service_has_a_health_check_and_a_pinned_image(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert service["healthcheck"]["test"], name
        tag = service["image"].partition(":")[2]
        assert tag, f"{name} names no version"
        assert tag != "latest", name


def test_the_broker_is_the_release_that_the_local_services_run(compose: dict[str, Any]) -> None:
    lock = (REPOSITORY / "provider" / "wasmline" / "local" / "kafka.lock").read_text()
    version = compose["services"]["kafka"]["image"].partition(":")[2]
    assert f"org.apache.kafka:kafka_2.13:{version}" in lock


def test_the_images_are_the_projects_own_release(compose: dict[str, Any]) -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["version"]["path"]
    release = (REPOSITORY / version).read_text()
    own = [service["image"] for service in compose["services"].values() if service["image"].startswith("wasmline/")]
    assert own
    assert all(f'"{image.partition(":")[2]}"' in release for image in own)


def test_the_images_are_built_with_every_file_of_the_wheel() -> None:
    targets = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    before = (FILE.parent / "Dockerfile").read_text().partition("RUN uv pip install")[0]
    copied = [line.split()[1] for line in before.splitlines() if line.startswith("COPY wasm_modules")]
    assert [path for path in targets["wheel"]["force-include"] if not path.startswith(tuple(copied))] == []


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
