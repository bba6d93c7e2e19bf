"""The Compose file with its variables replaced, as Compose reads it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[3]
FOLDER = REPOSITORY / "docker"
FILE = FOLDER / "compose.yaml"

VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>\w+):-(?P<default>[^}]*)\})")
"""The two forms that the file uses: an escaped dollar, and a variable with a default."""


def read_compose(variables: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """Return the Compose file, with variables from ``variables`` only."""
    return dict(_replaced(yaml.safe_load(FILE.read_text()), variables))


def read_env_file(name: str) -> dict[str, str]:
    """Return the variables of an env file beside the Compose file."""
    lines = (FOLDER / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def command(service: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a service's command; Compose splits one that is text as a shell does."""
    given = service["command"]
    return shlex.split(given) if isinstance(given, str) else list(given)


def option(service: Mapping[str, Any], name: str) -> str:
    """Return the value of an option of a service's command."""
    arguments = command(service)
    return arguments[arguments.index(name) + 1]


def mounts(service: Mapping[str, Any]) -> dict[str, str]:
    """Return the sources of a service's volumes, by their paths in the container."""
    return {target: source for source, target, *_ in (each.split(":") for each in service.get("volumes", ()))}


def _replaced(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return VARIABLE.sub(lambda found: _value(found, variables), value)
    if isinstance(value, list):
        return [_replaced(each, variables) for each in value]
    if isinstance(value, dict):
        return {key: _replaced(each, variables) for key, each in value.items()}
    return value


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found["name"] is None:
        return "$"
    return variables.get(found["name"]) or found["default"]
