"""Airflow's own API server in this process, with the plugin as Airflow finds it, and a user of each role."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

ROLES = ("viewer", "user", "op", "admin")


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
