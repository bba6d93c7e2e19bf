"""The parts of the local Airflow that need none: its settings, and how a run is shown."""

import io
import json
import stat
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from demo_stack.progress_lines import ProgressLines
from demo_stack.run_progress import RunProgress
from demo_stack.stack import repository
from demo_stack.terminal_progress import TerminalProgress
from wasmline.errors import LocalError
from wasmline.local.process import Service
from wasmline_provider.local.airflow import LocalAirflow
from wasmline_provider.local.airflow_environment import environment, identity
from wasmline_provider.local.api_client import AirflowApi, TaskState

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def task(name: str, state: str, seconds: float | None = None) -> TaskState:
    ended = BEGAN + timedelta(seconds=seconds) if seconds is not None else None
    return TaskState(task=name, state=state, started=BEGAN, ended=ended, tries=1)


def test_a_home_keeps_its_ports_and_secrets_for_nobody_else_to_read(tmp_path: Path) -> None:
    first = identity(tmp_path)
    assert identity(tmp_path) == first
    assert stat.S_IMODE((tmp_path / "wasmline.json").stat().st_mode) == 0o600
    assert len(set(first.ports.values())) == len(first.ports)


def test_another_airflows_settings_do_not_leak_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_CONN_THEIRS", "kafka://theirs")
    made = environment(
        tmp_path,
        tmp_path / "dags",
        identity(tmp_path),
        parallelism=3,
        users={},
        connections={"kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": "here:1"}}},
        variables={"place": "here"},
        settings={"CORE__PARALLELISM": "5"},
        python_path=(tmp_path / "dags",),
    )
    assert made["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert "AIRFLOW_CONN_THEIRS" not in made
    assert json.loads(made["AIRFLOW_CONN_KAFKA_DEFAULT"])["extra"] == {"bootstrap.servers": "here:1"}
    assert made["AIRFLOW_VAR_PLACE"] == "here"
    assert made["AIRFLOW__CORE__PARALLELISM"] == "5", "a setting that is given is over its own"


def test_users_have_roles_and_passwords_that_stay(tmp_path: Path) -> None:
    airflow = LocalAirflow(tmp_path, tmp_path / "dags", users={"vera": "viewer", "ada": "admin"})
    made = airflow.environment()
    assert made["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] == "False"
    assert made["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == "vera:viewer,ada:admin"
    passwords = Path(made["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    assert json.loads(passwords.read_text()) == airflow.passwords
    assert stat.S_IMODE(passwords.stat().st_mode) == 0o600
    again = LocalAirflow(tmp_path, tmp_path / "dags", users={"ada": "admin", "uma": "user"})
    assert again.passwords["ada"] == airflow.passwords["ada"]


def test_without_users_everybody_is_an_administrator(tmp_path: Path) -> None:
    made = LocalAirflow(tmp_path, tmp_path / "dags").environment()
    assert made["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] == "True"


def test_users_without_an_admin_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="admin"):
        LocalAirflow(tmp_path, tmp_path / "dags", users={"vera": "viewer"})


def test_an_unknown_role_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="boss"):
        LocalAirflow(tmp_path, tmp_path / "dags", users={"vera": "boss", "ada": "admin"})


def test_users_keep_their_passwords_while_others_are_asked_for(tmp_path: Path) -> None:
    both = LocalAirflow(tmp_path, tmp_path / "dags", users={"vera": "viewer", "ada": "admin"}).passwords
    assert LocalAirflow(tmp_path, tmp_path / "dags").passwords == {}
    assert LocalAirflow(tmp_path, tmp_path / "dags", users={"ada": "admin"}).passwords == {"ada": both["ada"]}
    assert LocalAirflow(tmp_path, tmp_path / "dags", users={"vera": "viewer", "ada": "admin"}).passwords == both


def test_without_a_terminal_each_change_is_a_line_once() -> None:
    lines: list[str] = []
    with RunProgress(ProgressLines(lines.append), ["build", "deploy"]) as progress:
        progress.show([task("deploy", "None"), task("build", "running")])
        progress.show([task("deploy", "queued"), task("build", "running")], {"build": "half way"})
        progress.show([task("deploy", "queued"), task("build", "running")], {"build": "half way"})
        progress.show([task("deploy", "deferred"), task("build", "success", 2.5)])
        progress.show([task("deploy", "upstream_failed", 0), task("build", "success", 2.5)])
    assert [line.partition("] ")[2] for line in lines] == [
        "build: running",
        "build: half way",
        "build: success after 2.5 s",
        "deploy: running",
        "deploy: not run after 0.0 s",
    ]


@pytest.mark.parametrize(
    ("tasks", "news", "awaited"),
    [
        ([task("deploy", "None"), task("build", "scheduled")], {}, "Airflow starts build"),
        ([task("deploy", "None"), task("build", "running")], {}, "build: running"),
        ([task("deploy", "deferred"), task("build", "running")], {"deploy": "7 in"}, "build: running; deploy: 7 in"),
        ([task("deploy", "queued"), task("build", "success", 2.5)], {"build": "old"}, "Airflow starts deploy"),
        ([task("deploy", "success", 1), task("build", "success", 2.5)], {}, "Airflow ends the run"),
    ],
)
def test_a_silent_run_says_which_tasks_it_waits_for(tasks: list[TaskState], news: dict[str, str], awaited: str) -> None:
    lines: list[str] = []
    now = iter(range(0, 4_000, 4))
    lines_of_run = ProgressLines(lines.append, lambda: float(next(now)))
    RunProgress(lines_of_run, ["build", "deploy"]).show(tasks, news)
    lines_of_run.check()
    assert lines[-1].partition("] ")[2] == f"{awaited} (4 s)"


def test_at_a_terminal_the_steps_are_in_their_order() -> None:
    shown = io.StringIO()
    with TerminalProgress(Console(file=shown, width=80, force_terminal=True)) as terminal:
        progress = RunProgress(terminal, ["build", "deploy"])
        progress.show([task("deploy", "deferred"), task("build", "success", 2.5)], {"deploy": "half way"})
    assert shown.getvalue().index("build") < shown.getvalue().index("deploy") < shown.getvalue().index("half way")


def test_the_demo_finds_its_checkout_from_below_and_says_so_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LocalError, match="checkout"):
        repository()
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "delivery_pipeline.py").touch()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert repository() == tmp_path


def test_services_that_an_earlier_release_started_are_found_and_stopped(tmp_path: Path) -> None:
    """``make down`` after an upgrade."""
    plan = str(tmp_path / "services.json")
    service = Service.detach([sys.executable, "-c", "import time; time.sleep(600)", plan], plan, tmp_path / "log")
    (tmp_path / "keeper.json").write_text(json.dumps({"pid": service.pid}))
    airflow = LocalAirflow(tmp_path, tmp_path / "dags")
    assert airflow.running()
    airflow.stop()
    assert not service.alive()


def api_that(answer: Callable[[httpx.Request], httpx.Response]) -> AirflowApi:
    api = AirflowApi("http://127.0.0.1:1")
    api._client = httpx.Client(base_url=api.url, transport=httpx.MockTransport(answer))
    return api


@pytest.mark.parametrize(("workers", "scheduler", "healthy"), [(200, 0, True), (200, 1, False), (503, 0, False)])
def test_a_server_is_healthy_once_it_also_answers_workers(workers: int, scheduler: int, healthy: bool) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/execution/health":
            return httpx.Response(workers, json={})
        return httpx.Response(200, json={"scheduler": {"status": ("healthy", "unhealthy")[scheduler]}})

    with closing(api_that(answer)) as api:
        assert api.healthy(["scheduler"]) is healthy


def test_a_poll_without_an_answer_in_time_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = iter([httpx.ReadTimeout("timed out"), "running", "success"])

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("taskInstances"):
            return httpx.Response(200, json={"task_instances": []})
        state = next(runs)
        if isinstance(state, Exception):
            raise state
        return httpx.Response(200, json={"state": state})

    monkeypatch.setattr("wasmline_provider.local.api_client.POLL_INTERVAL_S", 0)
    looks: list[list[TaskState]] = []
    with closing(api_that(answer)) as api:
        assert api.wait("dag", "run", timeout=60, look=looks.append) == "success"
        assert looks == [[], []]
        with pytest.raises(TimeoutError, match="run run of dag is still unknown after 0 s"):
            api.wait("dag", "run", timeout=0)
