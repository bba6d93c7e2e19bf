"""Decides whether the failure of a task is retried."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from airflow.sdk.exceptions import AirflowFailException

from wasmline.errors import JobFailed, WasmlineError
from wasmline.extras import missing_extra
from wasmline.restart_policy import is_transient

R = TypeVar("R")


def fail_at_once(execute: Callable[..., R]) -> Callable[..., R]:
    """Return an operator's method that fails its task without a retry by an error that no retry can cure.

    Of a failed run the error of its report decides. A library of an extra that is not installed is one of these errors;
    others than Wasmline's are retried as ever.
    """

    @wraps(execute)
    def method(*arguments: Any, **options: Any) -> R:
        try:
            return execute(*arguments, **options)
        except WasmlineError as error:
            if is_transient(_name(error)):
                raise
            raise AirflowFailException(f"{type(error).__name__}: {error}") from error
        except ModuleNotFoundError as error:
            if (missing := missing_extra(error)) is None:
                raise
            raise AirflowFailException(f"{type(missing).__name__}: {missing}") from error

    return method


def _name(error: WasmlineError) -> str | None:
    if isinstance(error, JobFailed):
        reported: str | None = error.report.get("error")
        return reported
    return type(error).__name__
