"""A real Airflow on this machine: API server, scheduler with its executor, triggerer, DAG processor if wanted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from wasmline.errors import ServiceFailed
from wasmline.local import service_folder
from wasmline.local.process import Service
from wasmline_provider.local import service_group
from wasmline_provider.local.airflow_environment import Identity, environment, identity, passwords
from wasmline_provider.local.api_client import AirflowApi

START_TIMEOUT_S = 180.0
"""Seconds to wait for a start. On two idle cores it takes 15 to 20."""

POLL_INTERVAL_S = 0.2
LOG_LINES = 30
PLAN, RUNNING = "services.json", "keeper.json"  # files that an earlier release may have written
HEALTH = {"scheduler": "scheduler", "triggerer": "triggerer", "dag-processor": "dag_processor"}

ROLES = ("viewer", "user", "op", "admin")
"""The roles of Airflow's simple auth manager."""


class LocalAirflow:
    """An Airflow with its state in ``home``: it restarts with its past runs and, if it is free, on the same port.

    All of it ends with this process, however it ends, unless it is started detached: services, executor workers, and
    the Spark drivers of its tasks. Without ``users``, whoever on this machine has access to the port is an
    administrator.

        with LocalAirflow(Path("build/airflow"), Path("dags"), connections={"kafka_default": {...}}) as airflow:
            run = airflow.api.trigger("my_dag")

    :param connections: Airflow's connections by id, as JSON-able data.
    :param variables: Airflow's variables by name.
    :param users: the roles of users by name, ``admin``, ``op``, ``user`` or ``viewer``, at least one of them an admin;
        see ``passwords``.
    :param settings: Airflow's settings by ``SECTION__NAME``, over those of this Airflow.
    :param python_path: folders that DAGs import from, besides ``dags``.
    :param watch_dags: read DAG files again when they change, instead of once.
    """

    def __init__(
        self,
        home: Path,
        dags: Path,
        *,
        connections: Mapping[str, Mapping[str, Any]] | None = None,
        variables: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        python_path: Sequence[Path] = (),
        parallelism: int = 4,
        watch_dags: bool = False,
    ) -> None:
        self.home = home.absolute()
        self.dags = dags.absolute()
        self.connections = dict(connections or {})
        self.variables = dict(variables or {})
        self.users = dict(users or {})
        self._admin = next((name for name, role in self.users.items() if role == "admin"), None)
        if unknown := set(self.users.values()) - set(ROLES):
            raise ValueError(f"no role of the simple auth manager: {', '.join(sorted(unknown))}")
        if self.users and self._admin is None:
            raise ValueError("none of the users is an admin: the DAGs could not be controlled over the API")
        self.settings = dict(settings or {})
        self._python_path = (self.dags, *(path.absolute() for path in python_path))
        self._parallelism = parallelism
        self._services = ["api-server", "scheduler", "triggerer", *(["dag-processor"] if watch_dags else [])]
        self._service_group = self._remembered()
        self._identity: Identity | None = None
        self._api: AirflowApi | None = None

    @property
    def url(self) -> str:
        """The address of its web interface."""
        return self._known().url

    @property
    def passwords(self) -> dict[str, str]:
        """The passwords of its users by name."""
        return passwords(self.home, self.users)

    @property
    def api(self) -> AirflowApi:
        """Its REST API, after the start, as an administrator."""
        if self._api is None:
            self._api = AirflowApi(self.url)
            if self._admin is None:
                self._api.login()
            else:
                self._api.login(self._admin, self.passwords[self._admin])
        return self._api

    def running(self) -> bool:
        """Return whether an Airflow runs in this home."""
        return self._service_group is not None and self._service_group.alive()

    def prepare(self) -> None:
        """Create or migrate the database and load the DAGs; needs no connection. Raises ServiceFailed."""
        service_folder.own_folder(self.home)
        log = self._log("prepare")
        with log.open("ab") as output:
            status = subprocess.run(
                [sys.executable, "-m", "wasmline_provider.local.airflow_db"],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            ).returncode
        if status:
            raise self._failure("Airflow's database or the DAGs cannot be prepared", log)

    def start(self, *, detached: bool = False) -> None:
        """Start the services of a prepared home and return when they are healthy. Raises ServiceFailed."""
        if self.running():
            raise ServiceFailed(f"an Airflow runs in {self.home}: stop it, or name another folder", log="")
        plan = self.home / PLAN
        services = [
            service_group.ServicePlan(command=_airflow(name), log=str(self._log(name))) for name in self._services
        ]
        content = service_group.Plan(environment=self.environment(), services=services)
        service_folder.write(plan, json.dumps(content), private=True)
        command = [sys.executable, service_group.__file__, str(plan)]
        if detached:
            self._service_group = Service.detach([*command, "0"], str(plan), self._log("service_group"))
        else:
            self._service_group = _owned([*command, str(os.getpid())], str(plan), self._log("service_group"))
        service_folder.write(self.home / RUNNING, json.dumps({"pid": self._service_group.pid}))
        try:
            self._await_health(self._service_group)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the services in order, and all their descendants. Does nothing if none run."""
        if self._api is not None:
            self._api.close()
            self._api = None
        if self._service_group is not None:
            self._service_group.stop(grace=90)
            self._service_group = None
        (self.home / RUNNING).unlink(missing_ok=True)

    def __enter__(self) -> LocalAirflow:
        self.prepare()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _await_health(self, running: Service) -> None:
        api = AirflowApi(self.url)
        wanted = [HEALTH[name] for name in self._services if name in HEALTH]
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not api.healthy(wanted):
                if not running.alive() or time.monotonic() > deadline:
                    raise self._failure("Airflow did not become healthy", *map(self._log, self._services))
                time.sleep(POLL_INTERVAL_S)
        finally:
            api.close()

    def _known(self) -> Identity:
        if self._identity is None:
            self._identity = identity(self.home, running=self.running())
        return self._identity

    def environment(self) -> dict[str, str]:
        """Return the environment of each of its processes."""
        return environment(
            self.home,
            self.dags,
            self._known(),
            parallelism=self._parallelism,
            users=self.users,
            connections=self.connections,
            variables=self.variables,
            settings=self.settings,
            python_path=self._python_path,
        )

    def _remembered(self) -> Service | None:
        path = self.home / RUNNING
        if not path.exists():
            return None
        return Service(json.loads(path.read_text())["pid"], str(self.home / PLAN), detached=True)

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"

    def _failure(self, what: str, *logs: Path) -> ServiceFailed:
        ends = "\n".join(f"{log}:\n{_end(log)}" for log in logs)
        return ServiceFailed(f"{what}; the ends of its logs:\n{ends}", log=ends)


def _airflow(command: str) -> list[str]:
    return [sys.executable, "-m", "airflow", command]


def _owned(command: list[str], mark: str, log: Path) -> Service:
    """Start a service group that ends with this process. Ctrl-C reaches only this process, which stops it in order."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    return Service(process.pid, mark, detached=False, process=process)


def _end(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:]) if log.exists() else ""
