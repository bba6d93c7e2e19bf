"""Airflow's own API server in this process, with the plugin as Airflow finds it, and a user of each role."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from wasmline.local.process import wait_until
from wasmline.restart_policy import RestartPolicy
from wasmline.testing.kafka import RunningKafka
from wasmline_provider.plugin import cluster_reader
from wasmline_provider.plugin.application import create_application
from wasmline_provider.plugin.page import Page
from wasmline_provider.plugin.settings import PageSettings

WAIT_S = 30.0

ROLES = ("viewer", "user", "op", "admin")


@pytest.fixture(scope="module", autouse=True)
def readers_end() -> Iterator[None]:
    """End the threads that read clusters for pages: a later test may define the connection that they wait for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_reader, "DELAYS", RestartPolicy(first_delay_s=1.0, max_delay_s=1.0))
        yield
        patch.setattr(cluster_reader, "IDLE_TIMEOUT_S", 0.0)
        assert wait_until(
            lambda: "wasmline-cluster-reader" not in [each.name for each in threading.enumerate()], WAIT_S
        )


@pytest.fixture(scope="session")
def api_server(airflow_database: None) -> Iterator[FastAPI]:
    from airflow.api_fastapi.app import create_app, purge_cached_app

    yield create_app(apps="core")
    purge_cached_app()


@pytest.fixture
def client_of(api_server: FastAPI, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], TestClient]:
    """Return a client with the token of a user of a role; of "" without one."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "of these tests" * 8)

    def client_of(role: str) -> TestClient:
        headers = {"X-Wasmline": "1"}
        if role:
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=f"the {role}", role=role))
            headers["Authorization"] = f"Bearer {token}"
        return TestClient(api_server, headers=headers)

    return client_of


class PageClient:
    """A user of the page."""

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.cursor = ""

    def get(self, path: str) -> Any:
        answer = self.client.get(f"/api/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def changes(self) -> Any:
        """Return the rows that have changed since the last call."""
        found = self.get(f"state?since={self.cursor}")
        self.cursor = found["cursor"]
        return found

    def row(self, name: str, kind: str = "transforms", **wanted: object) -> dict[str, Any]:
        """Return a row of the connected cluster once it has these values."""
        key = "name" if kind == "transforms" else "job"

        def found() -> list[dict[str, Any]]:
            state = self.get("state")
            rows = state[kind] if state["cluster"]["state"] == "connected" else []
            return [each for each in rows if each[key] == name and wanted.items() <= each.items()]

        assert wait_until(lambda: bool(found()), WAIT_S), (self.get("state"), wanted)
        return found()[0]

    def plan(self, action: str, **fields: object) -> Any:
        answer = self.client.post(f"/api/plans/{action}", json=fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, action: str, **fields: object) -> tuple[int, str]:
        answer = self.client.post(f"/api/actions/{action}", json={"reason": "a test", **fields})
        body = answer.json()
        return answer.status_code, body.get("text") or body["detail"]

    def act(self, action: str, **fields: object) -> str:
        """Do what is planned; return what was done."""
        plan = self.plan(action, **fields)
        assert (plan["is_possible"], plan["problem"]) == (True, "")
        status, text = self.post(action, **plan["fields"])
        assert status == 200, text
        return text


@pytest.fixture
def open_page(
    client_of: Callable[[str], TestClient], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., PageClient]:
    """Open the page of a cluster as a user of a role; ``settings`` are those of the page."""

    def open_page(kafka: RunningKafka, role: str = "user", **settings: Any) -> PageClient:
        extra = {"bootstrap.servers": kafka.bootstrap_servers}
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
        places = {name: str(tmp_path / name) for name in ("registry", "models")}
        monkeypatch.setenv("AIRFLOW_CONN_WASMLINE_DEFAULT", json.dumps({"conn_type": "wasmline", "extra": places}))
        app = create_application(Page(PageSettings(**settings)))
        return PageClient(TestClient(app, headers=dict(client_of(role).headers)))

    return open_page
