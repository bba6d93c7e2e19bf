"""A DAG that builds, tests and publishes a transform; run by pytest where the wheel is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import wasmline


def test_a_dag_of_the_installed_wheel_builds_tests_and_publishes(run_dag: Callable[..., Any], tmp_path: Path) -> None:
    from airflow.sdk import DAG

    from wasmline.build import scaffold
    from wasmline.registry import FilesystemRegistry
    from wasmline_provider.operators.build import WasmBuildOperator, WasmPublishOperator, WasmTestOperator

    assert "site-packages" in Path(wasmline.__file__).parts
    scaffold(tmp_path / "shout", language="cpp")
    project, registry = str(tmp_path / "shout"), str(tmp_path / "registry")
    with DAG("installed", schedule=None) as dag:
        built = WasmBuildOperator(task_id="build", project=project)
        tested = WasmTestOperator(task_id="test", project=project)
        built >> tested >> WasmPublishOperator(task_id="publish", project=project, registry=registry)
    assert run_dag(dag).state == "success"
    assert FilesystemRegistry(registry).get("shout", "0.1.0").digest
