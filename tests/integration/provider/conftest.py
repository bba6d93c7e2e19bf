"""The product's DAGs, and a connection to the broker of the tests."""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import wasmline
from wasmline.testing.kafka import RunningKafka

DAGS = Path(wasmline.__file__).parents[2] / "dags"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], ModuleType]:
    """Load a DAG file anew, with its things below a folder of its own, which the connection names, too."""
    monkeypatch.setenv("WASMLINE_HOME", str(tmp_path))
    places = {name: str(tmp_path / name) for name in ("registry", "models", "storage")}
    monkeypatch.setenv("AIRFLOW_CONN_WASMLINE_DEFAULT", json.dumps({"conn_type": "wasmline", "extra": places}))
    monkeypatch.delitem(sys.modules, "demo_settings", raising=False)

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(name, DAGS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def connected(kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch) -> RunningKafka:
    """Make the broker of the tests the cluster of the connection ``kafka_default``."""
    extra = {"bootstrap.servers": kafka.bootstrap_servers}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    return kafka
