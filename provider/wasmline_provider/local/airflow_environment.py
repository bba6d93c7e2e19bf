"""The environment of a small Airflow: SQLite, a few local workers, this machine only; users by name, or all admins."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wasmline.local import service_folder
from wasmline.local.ports import HOST, free_port, is_free

FILE = "wasmline.json"
PASSWORDS = "passwords.json"
PORTS = ("api", "worker_log", "trigger_log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The persistent state of an Airflow's home: its ports, and the secrets that its processes share."""

    ports: dict[str, int]
    jwt_secret: str
    fernet_key: str

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.ports['api']}"


def identity(home: Path, *, running: bool = False) -> Identity:
    """Return the identity of ``home``, created at the first call; a port that is now in use is replaced.

    With ``running`` the ports are in use by this home's own Airflow.
    """
    path = home / FILE
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    taken: set[int] = set()
    kept = known.get("ports", {})
    ports = kept if running and kept else {name: _port(kept.get(name, 0), taken) for name in PORTS}
    found = Identity(
        ports=ports,
        jwt_secret=known.get("jwt_secret") or secrets.token_urlsafe(64),
        fernet_key=known.get("fernet_key") or _fernet_key(),
    )
    service_folder.own_folder(home)
    service_folder.write(path, json.dumps(asdict(found)), private=True)
    return found


def passwords(home: Path, users: Iterable[str]) -> dict[str, str]:
    """Return the passwords of users, created at the first call, from the file in which Airflow looks them up."""
    path = home / PASSWORDS
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    found = {user: known.get(user) or secrets.token_urlsafe(16) for user in users}
    if not found.items() <= known.items():
        service_folder.own_folder(home)
        service_folder.write(path, json.dumps({**known, **found}), private=True)
    return found


def environment(
    home: Path,
    dags: Path,
    known: Identity,
    *,
    parallelism: int,
    users: Mapping[str, str],
    connections: Mapping[str, Mapping[str, Any]],
    variables: Mapping[str, str],
    settings: Mapping[str, str],
    python_path: tuple[Path, ...],
) -> dict[str, str]:
    """Return the environment of every process of this Airflow; those of another Airflow are omitted."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    binaries = str(Path(sys.executable).parent)
    return {
        **inherited,
        "PATH": os.pathsep.join([binaries, inherited.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join([*map(str, python_path), *filter(None, [inherited.get("PYTHONPATH")])]),
        "PYTHONWARNINGS": "ignore",
        "AIRFLOW_HOME": str(home),
        **{
            f"AIRFLOW__{name}": value
            for name, value in {
                **_settings(home, dags, known, parallelism),
                **_user_settings(home, users),
                **settings,
            }.items()
        },
        **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(value) for name, value in connections.items()},
        **{f"AIRFLOW_VAR_{name.upper()}": value for name, value in variables.items()},
    }


def _settings(home: Path, dags: Path, known: Identity, parallelism: int) -> dict[str, str]:
    ports = known.ports
    return {
        "CORE__DAGS_FOLDER": str(dags),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__EXECUTOR": "LocalExecutor",
        "CORE__PARALLELISM": str(parallelism),
        "CORE__FERNET_KEY": known.fernet_key,
        "CORE__EXECUTION_API_SERVER_URL": f"{known.url}/execution/",
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "API__HOST": HOST,
        "API__PORT": str(ports["api"]),
        "API__BASE_URL": known.url,
        "API__WORKERS": "1",
        "API__SECRET_KEY": known.jwt_secret,
        "API_AUTH__JWT_SECRET": known.jwt_secret,
        "LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "LOGGING__WORKER_LOG_SERVER_HOST": HOST,
        "LOGGING__WORKER_LOG_SERVER_PORT": str(ports["worker_log"]),
        "LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports["trigger_log"]),
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
        "SCHEDULER__ENABLE_HEALTH_CHECK": "False",
        "TRIGGERER__JOB_HEARTBEAT_SEC": "1",
        "WORKERS__SOCKET_CLEANUP_TIMEOUT": "5",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "30",
    }


def _user_settings(home: Path, users: Mapping[str, str]) -> dict[str, str]:
    if not users:
        return {"CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True"}
    passwords(home, users)
    return {
        "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in users.items()),
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / PASSWORDS),
    }


def _port(known: int, taken: set[int]) -> int:
    if known and known not in taken and is_free(known):
        taken.add(known)
        return known
    return free_port(taken)


def _fernet_key() -> str:
    from cryptography.fernet import Fernet

    return Fernet.generate_key().decode()
