"""A whole Airflow beside a broker, for tests that go the way a user goes: over REST."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import wasmline
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.local import AirflowApi, LocalAirflow

REPOSITORY = Path(wasmline.__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningAirflow:
    """An Airflow that runs the product's DAGs; ``home`` is where they keep things."""

    local: LocalAirflow
    api: AirflowApi
    home: Path

    def run(self, dag: str, **conf: object) -> str:
        """Run a DAG to its success and return the run's id."""
        self.api.unpause(dag)
        run = self.api.trigger(dag, conf)
        self.wait(dag, run, timeout=540)
        return run

    def wait(self, dag: str, run: str, *, timeout: float) -> None:
        """Wait for a run's success; a failure shows the end of its tasks' logs."""
        state = self.api.wait(dag, run, timeout=timeout)
        failed = [task for task in self.api.tasks(dag, run) if task.state == "failed"]
        logs = {task.task: "\n".join(self.api.log(dag, run, task)[-30:]) for task in failed}
        assert state == "success", "\n".join(f"{task}:\n{log}" for task, log in logs.items())


@pytest.fixture(scope="module")
def airflow_settings() -> dict[str, str]:
    """Airflow's settings by SECTION__NAME; a module of tests may have some of its own."""
    return {}


@pytest.fixture(scope="module")
def airflow_users() -> dict[str, str]:
    """The roles of Airflow's users by name; without any, everybody is an administrator."""
    return {}


@pytest.fixture(scope="module")
def airflow(
    kafka: RunningKafka,
    tmp_path_factory: pytest.TempPathFactory,
    airflow_settings: dict[str, str],
    airflow_users: dict[str, str],
) -> Iterator[RunningAirflow]:
    """The DAGs of this repository and of these tests, on a real scheduler, executor and triggerer."""
    home = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WASMLINE_HOME", str(home))
        connections: dict[str, dict[str, Any]] = {
            "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": kafka.bootstrap_servers}},
            "spark_default": {"conn_type": "spark", "host": "local[2]"},
            "wasmline_default": {
                "conn_type": "wasmline",
                "extra": {name: str(home / name) for name in ("registry", "models", "storage")},
            },
        }
        dags = home / "dags"
        dags.mkdir()
        for path in (*(REPOSITORY / "dags").iterdir(), *(REPOSITORY / "tests" / "system" / "dags").glob("*.py")):
            (dags / path.name).symlink_to(path)
        local = LocalAirflow(
            home / "airflow", dags, connections=connections, settings=airflow_settings, users=airflow_users
        )
        with local:
            yield RunningAirflow(local=local, api=local.api, home=home)
