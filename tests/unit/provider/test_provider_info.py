"""What Airflow learns of the provider, against Airflow's own schema and our own modules."""

import importlib
import importlib.metadata
import importlib.resources
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from airflow.api_fastapi.core_api.datamodels.connections import ConnectionHookFieldBehavior
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
from airflow.triggers.base import BaseTrigger

import wasmline
from wasmline_provider.get_provider_info import get_provider_info
from wasmline_provider.hooks.object_store import FIELD
from wasmline_provider.hooks.wasmline import NAMES, WasmlineHook

INFO = get_provider_info()
BASES = {"operators": BaseOperator, "sensors": BaseSensorOperator, "hooks": BaseHook, "triggers": BaseTrigger}
"""By its list in the metadata: the base of the classes in its modules."""

MODULES = [module for kind in BASES for entry in INFO[kind] for module in entry["python-modules"]]


def test_the_metadata_meets_airflows_schema() -> None:
    schema = json.loads((importlib.resources.files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(INFO, schema)


def test_the_connection_type_is_that_of_its_hook() -> None:
    (entry,) = INFO["connection-types"]
    assert entry["hook-class-name"] == f"{WasmlineHook.__module__}.{WasmlineHook.__name__}"
    assert (entry["connection-type"], entry["hook-name"]) == (WasmlineHook.conn_type, WasmlineHook.hook_name)
    assert list(entry["conn-fields"]) == [*NAMES, FIELD]


def test_the_form_of_a_connection_shows_each_field_with_a_label_a_description_and_an_example() -> None:
    (form,) = [each for each in HookMetaService.hook_meta_data() if each.connection_type == "wasmline"]
    assert form.hook_name == "Wasmline"
    assert form.standard_fields
    assert form.standard_fields.host == ConnectionHookFieldBehavior(hidden=True)
    assert form.standard_fields.password == ConnectionHookFieldBehavior(hidden=True)
    assert form.extra_fields
    for name in (*NAMES, FIELD):
        field = form.extra_fields[name]
        assert field["schema"]["title"], name
        assert field["description"].endswith("."), name
        assert field["schema"]["type"] == ["string", "null"], name
        assert field["schema"]["examples"], name


def test_airflow_finds_the_provider_by_its_entry_point() -> None:
    entries = importlib.metadata.entry_points(group="apache_airflow_provider")
    (ours,) = [entry for entry in entries if entry.dist and entry.dist.name == INFO["package-name"]]
    assert ours.load() is get_provider_info


@pytest.mark.parametrize("module", MODULES)
def test_each_module_that_is_named_exists(module: str) -> None:
    assert importlib.import_module(module).__doc__


@pytest.mark.parametrize("kind", BASES)
def test_each_module_with_a_public_class_of_its_kind_is_named(kind: str) -> None:
    package = importlib.import_module(f"wasmline_provider.{kind}")
    modules = [
        importlib.import_module(f"{package.__name__}.{each.name}") for each in pkgutil.iter_modules(package.__path__)
    ]
    (entry,) = INFO[kind]
    assert entry["python-modules"] == [each.__name__ for each in modules if _public_classes(each, BASES[kind])]


def _public_classes(module: Any, base: type) -> list[str]:
    return [
        name
        for name, each in vars(module).items()
        if isinstance(each, type)
        and issubclass(each, base)
        and each.__module__ == module.__name__
        and not name.startswith("_")
    ]


def test_each_guide_that_is_named_exists() -> None:
    repository = Path(__file__).parents[3]  # the provider may be an installed one
    (integration,) = INFO["integrations"]
    assert all((repository / guide.removeprefix("/")).is_file() for guide in integration["how-to-guide"])


def _airflow(*command: str) -> Any:
    done = subprocess.run(
        [Path(sys.executable).parent / "airflow", "providers", *command, "--output", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_command_line_of_airflow_lists_the_provider() -> None:
    (ours,) = [each for each in _airflow("list") if each["package_name"] == "wasmline"]
    assert ours == {
        "package_name": "wasmline",
        "description": INFO["description"].removesuffix("."),
        "version": wasmline.__version__,
    }


def test_the_command_line_of_airflow_lists_the_links() -> None:
    assert set(INFO["extra-links"]) <= {each["extra_link_class_name"] for each in _airflow("links")}


def test_the_command_line_of_airflow_shows_all_of_its_metadata() -> None:
    (found,) = _airflow("get", "wasmline", "--full")
    assert {name: found.get(name) for name in INFO} == {**INFO, "description": INFO["description"].removesuffix(".")}


def test_reading_the_metadata_imports_neither_airflow_nor_the_engines_libraries() -> None:
    code = "import sys, wasmline_provider.get_provider_info; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"airflow", "confluent_kafka", "pyarrow", "wasmtime", "pyspark"} & set(loaded)


def test_parsing_a_dag_loads_none_of_the_engines_libraries() -> None:
    modules = ", ".join(each for each in MODULES if ".hooks." not in each)
    code = f"import sys, airflow.sdk, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"confluent_kafka", "pyarrow", "wasmtime", "pyspark", "xgboost", "numpy"} & set(loaded)
