"""What Airflow learns of the provider, against Airflow's own schema and our own modules."""

import importlib
import importlib.metadata
import importlib.resources
import json
import subprocess
import sys

import jsonschema
import pytest

from wasmline_provider.get_provider_info import get_provider_info

INFO = get_provider_info()
MODULES = [
    module for kind in ("operators", "hooks", "triggers") for entry in INFO[kind] for module in entry["python-modules"]
]


def test_the_metadata_meets_airflows_schema() -> None:
    schema = json.loads((importlib.resources.files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)


def test_airflow_finds_the_provider_by_its_entry_point() -> None:
    entries = importlib.metadata.entry_points(group="apache_airflow_provider")
    (ours,) = [entry for entry in entries if entry.dist and entry.dist.name == INFO["package-name"]]
    assert ours.load() is get_provider_info


@pytest.mark.parametrize("module", MODULES)
def test_each_module_that_is_named_exists(module: str) -> None:
    assert importlib.import_module(module).__doc__


def test_reading_the_metadata_imports_neither_airflow_nor_the_engines_libraries() -> None:
    code = "import sys, wasmline_provider.get_provider_info; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"airflow", "confluent_kafka", "pyarrow", "wasmtime", "pyspark"} & set(loaded)


def test_parsing_a_dag_loads_none_of_the_engines_libraries() -> None:
    modules = ", ".join(MODULES[:4])
    code = f"import sys, airflow.sdk, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"confluent_kafka", "pyarrow", "wasmtime", "pyspark", "xgboost", "numpy"} & set(loaded)
