"""Each route of the page with each role, on Airflow's own API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.routing import Mount

from integration.plugin.conftest import ROLES
from wasmline_provider.plugin.access import may_act
from wasmline_provider.plugin.actions import ACTIONS

READERS = dict.fromkeys(ROLES, True)
EDITORS = {role: role != "viewer" for role in ROLES}

TARGETS: dict[str, dict[str, Any]] = {
    "pause": {"transform": "eta"},
    "resume": {"job": "eta-job"},
    "rollback": {"transform": "eta", "generation": 1},
    "deploy": {"transform": "eta", "version": "1.0.0"},
    "stop": {"job": "eta-job"},
    "redrive": {"topic": "eta.dlq"},
}

Row = tuple[str, str, str, dict[str, Any] | None, dict[str, bool]]

TABLE: list[Row] = [
    ("GET", "/page", "/page", None, READERS),
    ("GET", "/static/{path:path}", "/static/page.html", None, READERS),
    ("GET", "/api/state", "/api/state", None, READERS),
    ("GET", "/api/lines", "/api/lines", None, READERS),
    ("GET", "/api/transforms/{name}", "/api/transforms/eta", None, READERS),
    ("GET", "/api/transforms/{name}/logs", "/api/transforms/eta/logs", None, READERS),
    ("GET", "/api/versions/{name}", "/api/versions/eta", None, READERS),
    ("GET", "/api/dead-letters/{topic}", "/api/dead-letters/eta.dlq", None, READERS),
    ("GET", "/api/records/{topic}/{partition}/{offset}", "/api/records/eta.in/0/7", None, READERS),
    ("GET", "/api/jobs/{job}", "/api/jobs/eta-job", None, READERS),
    ("GET", "/api/models/{name}", "/api/models/eta", None, READERS),
    ("GET", "/api/runs/{dag_id}/{run_id}", "/api/runs/retrain/run-1", None, READERS),
    ("GET", "/api/permissions", "/api/permissions?dag=retrain", None, READERS),
    *(
        ("POST", f"/api/{kind}/{{name}}", f"/api/{kind}/{name}", {**target, **reason}, EDITORS)
        for name, target in TARGETS.items()
        for kind, reason in (("plans", {}), ("actions", {"reason": "a test"}))
    ),
]
"""Method, path, an example of it, its body, and the roles that may use it."""


@pytest.fixture(scope="session")
def plugin(api_server: FastAPI) -> FastAPI:
    [found] = [each.app for each in api_server.routes if isinstance(each, Mount) and each.path == "/wasmline"]
    assert isinstance(found, FastAPI)
    return found


def test_each_route_is_in_the_table(plugin: FastAPI) -> None:
    served = {(method, each.path) for each in plugin.routes if isinstance(each, APIRoute) for method in each.methods}
    assert len(served) == len(plugin.routes), "what is no route has no permission"
    assert served == {(method, path) for method, path, *_ in TABLE}
    assert set(TARGETS) == set(ACTIONS)


@pytest.mark.parametrize(("method", "path", "example", "body", "roles"), TABLE)
def test_a_route_is_for_its_roles(
    client_of: Callable[[str], TestClient], method: str, path: str, example: str, body: Any, roles: dict[str, bool]
) -> None:
    url = f"/wasmline{example}"
    assert client_of("").request(method, url, json=body).status_code == 401
    for role, is_allowed in roles.items():
        answer = client_of(role).request(method, url, json=body)
        assert (answer.status_code not in (401, 403)) == is_allowed, (role, answer.text)
        assert answer.status_code != 500, answer.text  # nothing is deployed, and no cluster is connected
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_ask_airflow_for_what_it_may_do_there(client_of: Callable[[str], TestClient], role: str) -> None:
    found = client_of(role).get("/wasmline/api/permissions", params={"dag": ["retrain", "promote"]}).json()
    allowed = {"may_trigger": EDITORS[role], "may_answer": EDITORS[role]}
    assert found == {"dags": {"retrain": allowed, "promote": allowed}, "user_id": f"the {role}"}


def test_with_teams_nobody_may_act_for_a_dag_that_airflow_no_longer_has(
    api_server: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow does not say whose it was."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.models.dag import DagModel

    user = SimpleAuthManagerUser(username="uma", role="user", teams=["one"])
    assert may_act(user, ["deleted"], "")
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    assert not may_act(user, ["deleted"], "")
    monkeypatch.setattr(DagModel, "get_dagmodel", lambda dag_id: object())
    assert may_act(user, ["deleted"], "")


@pytest.mark.parametrize(
    "headers", [{"X-Wasmline": ""}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
)
@pytest.mark.parametrize("kind", ["plans", "actions"])
def test_another_site_can_change_nothing(
    client_of: Callable[[str], TestClient], kind: str, headers: dict[str, str]
) -> None:
    body = {"transform": "eta", "reason": "a test"}
    answer = client_of("admin").post(f"/wasmline/api/{kind}/pause", json=body, headers=headers)
    assert (answer.status_code, "X-Wasmline" in answer.json()["detail"]) == (403, True)


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("pause", {}),
        ("pause", {"transform": "eta", "reason": ""}),
        ("pause", {"transform": "eta", "reason": "x" * 1_001}),
        ("pause", {"transform": "eta", "reason": ["x"]}),
        ("pause", {"transform": "eta", "reason": "x", "more": 1}),
        ("rollback", {"transform": "eta", "generation": "many", "reason": "x"}),
        ("deploy", {"transform": "eta", "reason": "x"}),
        ("unknown", {"reason": "x"}),
    ],
)
def test_a_request_that_is_none_is_refused(
    client_of: Callable[[str], TestClient], action: str, body: dict[str, Any]
) -> None:
    assert client_of("admin").post(f"/wasmline/api/actions/{action}", json=body).status_code == 422


@pytest.mark.parametrize(
    "path", ["/docs", "/openapi.json", "/redoc", "/static/../application.py", "/static/views", "/static/x.py"]
)
def test_nothing_else_is_served(client_of: Callable[[str], TestClient], path: str) -> None:
    assert client_of("admin").get(f"/wasmline{path}").status_code == 404


def test_a_cluster_that_is_not_connected_is_shown_as_that(client_of: Callable[[str], TestClient]) -> None:
    found = client_of("viewer").get("/wasmline/api/state").json()
    assert found["cluster"]["state"] in ("starting", "away")
    assert (found["transforms"], found["may_act"], found["user"]) == ([], False, "the viewer")
