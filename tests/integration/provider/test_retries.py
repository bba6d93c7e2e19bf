"""Retries of tasks in a DAG run: only of failures that may pass."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator

from wasmline.errors import BrokerUnavailable
from wasmline_provider.operators.build import WasmBuildOperator
from wasmline_provider.operators.failures import fail_at_once


def test_an_error_that_no_retry_cures_is_not_retried(run_dag: Callable[..., Any], tmp_path: Path) -> None:
    with DAG("no_project", schedule=None) as dag:
        WasmBuildOperator(task_id="build", project=str(tmp_path), retries=3, retry_delay=timedelta(0))
    (task,) = run_dag(dag).get_task_instances()
    assert (task.state, task.try_number) == ("failed", 1)


class UnavailableOperator(BaseOperator):
    """An operator whose cluster is away."""

    tries = 0

    @fail_at_once
    def execute(self, context: Any) -> None:
        type(self).tries += 1
        raise BrokerUnavailable("no broker answered", bootstrap_servers="nowhere:1")


def test_an_error_that_may_pass_is_retried(run_dag: Callable[..., Any]) -> None:
    with DAG("no_broker", schedule=None) as dag:
        UnavailableOperator(task_id="ask", retries=2, retry_delay=timedelta(0))
    (task,) = run_dag(dag).get_task_instances()
    assert (task.state, UnavailableOperator.tries) == ("failed", 3)
