"""The connections and the code of docs/connections.md, as Airflow reads them."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

import wasmline_provider
from wasmline.registry import FilesystemRegistry
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.hooks.spark import SparkJobHook
from wasmline_provider.hooks.wasmline import WasmlineHook
from wasmline_provider.operators.build import WasmPublishOperator
from wasmline_provider.operators.deploy import WasmDeployOperator
from wasmline_provider.operators.stream import SparkStreamOperator

PAGE = Path(wasmline_provider.__file__).parents[2].joinpath("docs", "connections.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables of the page."""
    (block,) = blocks("sh")
    for line in block.splitlines():
        (word,) = shlex.split(line)
        name, _, value = word.partition("=")
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("connected")
def test_the_connections_of_the_page_are_read() -> None:
    assert KafkaHook().get_conn().bootstrap_servers == "kafka:9092"
    assert SparkJobHook().master == "spark://spark-master:7077"
    found = WasmlineHook().get_conn()
    assert (found.registry, found.models) == ("s3://bucket/registry", "s3://bucket/models")
    assert found.storage == "s3a://bucket/wasmline"
    assert found.login
    assert (found.login.access_key, found.login.region) == ("ACCESS KEY", "eu-central-1")


@pytest.mark.usefixtures("connected")
def test_the_operators_of_the_page_have_their_locations_from_the_connection() -> None:
    names: dict[str, Any] = {
        each.__name__: each for each in (WasmPublishOperator, WasmDeployOperator, SparkStreamOperator)
    }
    with DAG("page", schedule=None):
        exec(blocks("python")[0], names)  # noqa: S102
    assert names["stream"].spec({}).storage == "s3a://bucket/wasmline"
    assert (names["publish"].registry, names["deploy"].registry) == (None, None)


def test_a_task_of_one_s_own_opens_the_registry_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connection = {"conn_type": "wasmline", "extra": {"registry": str(tmp_path)}}
    monkeypatch.setenv("AIRFLOW_CONN_WASMLINE_DEFAULT", json.dumps(connection))
    names: dict[str, Any] = {"WasmlineHook": WasmlineHook, "FilesystemRegistry": FilesystemRegistry}
    exec(blocks("python")[1], names)  # noqa: S102
    assert names["registry"].names() == []
