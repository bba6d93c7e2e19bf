"""pytest fixtures for DAGs and operators: ``pytest_plugins = ["wasmline_provider.testing"]`` in the top conftest.py.

It must be loaded before any import of Airflow: it gives the test run an Airflow of its own, in a temporary folder.

    def test_the_dag_runs(run_dag):
        with DAG("copy", schedule=None) as dag:
            copy()
        assert run_dag(dag).state == "success"
"""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HOME = Path(tempfile.mkdtemp(prefix="wasmline-airflow-"))
SETTINGS = {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(os.urandom(32)).decode(),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"),
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME / 'airflow.db'}",
    "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(HOME / "logs"),
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
}

# Warnings of Airflow's own use of its dependencies. Each line is "action:start of the message".
TOLERATED = (
    "ignore:Using `httpx` with `starlette.testclient` is deprecated",  # the in-process API of dag.test()
)


# At the import: a conftest.py that a path on the command line names is imported before ``pytest_configure`` is called.
for name in [name for name in os.environ if name.startswith("AIRFLOW")]:
    del os.environ[name]
os.environ.update(SETTINGS)
(HOME / "dags").mkdir()


def pytest_configure(config: pytest.Config) -> None:
    """Let Airflow's own warnings pass."""
    for line in TOLERATED:
        config.addinivalue_line("filterwarnings", line)


def pytest_unconfigure() -> None:
    """Remove it."""
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def airflow_database() -> None:
    """Airflow's database, with its tables."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture
def run_dag(airflow_database: None) -> Callable[..., Any]:
    """A function that runs a DAG in this process, without a scheduler, and returns its run."""

    def run(dag: Any, **conf: Any) -> Any:
        _store(dag)
        return dag.test(run_conf=conf)

    return run


def _store(dag: Any) -> None:
    """Write the DAG to the database, as the DAG processor would: its tasks refer to a version of it there."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.definitions.dag import SerializedDAG
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session

    with create_session() as session:
        DagBundlesManager().sync_bundles_to_db(session=session)  # type: ignore[no-untyped-call]
    lazy = LazyDeserializedDAG.from_dag(dag)
    with create_session() as session:
        SerializedDAG.bulk_write_to_db("dags-folder", None, [lazy], session=session)
        SerializedDagModel.write_dag(lazy, bundle_name="dags-folder", session=session)
