"""The locations that a task uses: as its arguments have them, or its connection."""

from __future__ import annotations

from typing import Any, Literal

from wasmline_provider.argument_checks import given
from wasmline_provider.hooks.wasmline import WasmlineHook


def location(task: Any, name: Literal["registry", "models"]) -> str:
    """Return the URL of a task's registry or models. Raises what WasmlineHook.locate raises."""
    url: str | None = given(getattr(task, name))
    if url is None:
        url = getattr(WasmlineHook(task.wasmline_conn_id).locate(**{name: None}), name)
    return str(url)
