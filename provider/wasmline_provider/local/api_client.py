"""A small client of Airflow's REST API: starts and follows runs, and reads their logs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx

POLL_INTERVAL_S = 0.5
"""Seconds between two polls of a run."""

FINAL = frozenset({"success", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """One task instance of a run. Times are None before they are known; ``tries`` counts from 1."""

    task: str
    state: str
    started: datetime | None
    ended: datetime | None
    tries: int

    @property
    def seconds(self) -> float | None:
        return (self.ended - self.started).total_seconds() if self.started and self.ended else None


class AirflowApi:
    """Client of one Airflow. Raises httpx.HTTPError if it does not respond or rejects a request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def healthy(self, components: Iterable[str]) -> bool:
        """Return whether the server responds, also to workers, and all of ``components`` have recent heartbeats.

        The first request to the workers' API makes its routes, for which the server answers nobody for seconds: on a
        busy machine, for longer than a task waits.
        """
        try:
            self._client.get("/execution/health").raise_for_status()
            health = self._client.get("/api/v2/monitor/health").raise_for_status().json()
        except (httpx.HTTPError, ValueError):
            return False
        return all((health.get(name) or {}).get("status") == "healthy" for name in components)

    def login(self, user: str | None = None, password: str | None = None) -> None:
        """Get a token; an Airflow whose users are all administrators gives one to any client, without a user."""
        if user is None:
            answer = self._client.get("/auth/token")
        else:
            answer = self._client.post("/auth/token", json={"username": user, "password": password})
        token = answer.raise_for_status().json()["access_token"]
        self._client.headers["Authorization"] = f"Bearer {token}"

    def knows(self, dag: str) -> bool:
        """Return whether a DAG can be triggered."""
        answer = self._client.get(f"/api/v2/dags/{dag}")
        return answer.status_code == httpx.codes.OK

    def import_errors(self) -> dict[str, str]:
        """Return the DAG files that cannot be loaded, with their tracebacks."""
        errors = self.get("/importErrors")["import_errors"]
        return {error["filename"]: error["stack_trace"] for error in errors}

    def trigger(self, dag: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run and return its id."""
        run: str = self.request("POST", f"/dags/{dag}/dagRuns", {"logical_date": None, "conf": dict(conf or {})})[
            "dag_run_id"
        ]
        return run

    def unpause(self, dag: str) -> None:
        """Unpause a DAG, so that its runs start."""
        self.request("PATCH", f"/dags/{dag}", {"is_paused": False})

    def abandon(self, dag: str) -> None:
        """Fail the runs of a DAG that a killed Airflow left unfinished: the next run would wait for them."""
        for state in ("running", "queued"):
            for run in self.get(f"/dags/{dag}/dagRuns?state={state}")["dag_runs"]:
                self.request("PATCH", f"/dags/{dag}/dagRuns/{run['dag_run_id']}", {"state": "failed"})

    def wait(
        self, dag: str, run: str, *, timeout: float, look: Callable[[list[TaskState]], None] = lambda _: None
    ) -> str:
        """Return the final state of a run; ``look`` is called with its tasks at each poll. Raises TimeoutError.

        A poll without an answer in time is repeated until ``timeout``: a busy machine is no failure of the run.
        """
        deadline = time.monotonic() + timeout
        state: str = "unknown"
        while time.monotonic() < deadline:
            with suppress(httpx.TimeoutException):
                state = self.get(f"/dags/{dag}/dagRuns/{run}")["state"]
                look(self.tasks(dag, run))
                if state in FINAL:
                    return state
            time.sleep(POLL_INTERVAL_S)
        raise TimeoutError(f"run {run} of {dag} is still {state} after {timeout:.0f} s")

    def tasks(self, dag: str, run: str) -> list[TaskState]:
        """Return the tasks of a run."""
        found = self.get(f"/dags/{dag}/dagRuns/{run}/taskInstances?limit=100")["task_instances"]
        return [
            TaskState(
                task=one["task_id"],
                state=one["state"] or "waiting",
                started=_time(one["start_date"]),
                ended=_time(one["end_date"]),
                tries=one["try_number"],
            )
            for one in found
        ]

    def xcom(self, dag: str, run: str, task: str) -> Any:
        """Return the result of a task."""
        return self.get(f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/return_value?deserialize=true")[
            "value"
        ]

    def log(self, dag: str, run: str, task: TaskState) -> list[str]:
        """Return the lines of a task's last try."""
        path = f"/dags/{dag}/dagRuns/{run}/taskInstances/{task.task}/logs/{max(task.tries, 1)}?full_content=true"
        content = self.get(path)["content"]
        lines = content if isinstance(content, list) else str(content).splitlines()
        return [text for line in lines for text in _lines(line)]

    def get(self, path: str) -> Any:
        """Return the JSON answer of a path below the API's root."""
        return self.request("GET", path)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send JSON and return the JSON answer."""
        answer = self._client.request(method, f"/api/v2{path}", json=body)
        return answer.raise_for_status().json()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _lines(entry: Any) -> list[str]:
    """Return one structured log entry as lines: its event and its errors."""
    if not isinstance(entry, Mapping):
        return str(entry).splitlines()
    lines = str(entry.get("event", "")).splitlines()
    for error in entry.get("error_detail") or []:
        lines.append(f"{error.get('exc_type')}: {error.get('exc_value')}")
    return lines
