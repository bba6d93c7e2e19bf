"""Parses the cause of a failed batch from Spark's text: errors cross from a task to the driver as text only."""

from __future__ import annotations

import re

from wasmline.errors import (
    CorruptRecord,
    DeploymentNotFound,
    GroupInUse,
    HangingTransaction,
    InvalidJob,
    InvalidKafkaConfig,
    NotAuthorized,
    OffsetOutOfRange,
    PrerequisiteMissing,
    ProgressLost,
    ReleaseMismatch,
    TooManyFailures,
    TopicMisconfigured,
    TopicNotFound,
    TransformError,
    UnsafeBroker,
    WasmlineError,
)

_GUEST_ERRORS: tuple[type[WasmlineError], ...] = (TooManyFailures, *TransformError.__subclasses__())
_JOB_ERRORS: tuple[type[WasmlineError], ...] = (
    CorruptRecord,
    DeploymentNotFound,
    GroupInUse,
    HangingTransaction,
    InvalidJob,
    InvalidKafkaConfig,
    NotAuthorized,
    OffsetOutOfRange,
    PrerequisiteMissing,
    ProgressLost,
    ReleaseMismatch,
    TopicMisconfigured,
    TopicNotFound,
    UnsafeBroker,
)
_OURS = re.compile(r"^\s*wasmline\.errors\.(\w+: .*)$", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by: |[\w.]*(?:Error|Exception): )(.*)$", re.MULTILINE)


def guest_failure(text: str) -> str | None:
    """Return ``Error: reason`` if the transform caused the failure, else None."""
    found = _ours(_GUEST_ERRORS).search(text)
    return f"{found[1]}: {found[2]}" if found else None


def job_error(text: str) -> WasmlineError | None:
    """Return the error, without its attributes, with which leases or tasks rejected a job, else None."""
    found = _ours(_JOB_ERRORS).search(text)
    kinds = {kind.__name__: kind for kind in _JOB_ERRORS}
    return kinds[found[1]](found[2].strip()) if found else None


def cause(text: str) -> str:
    """Return the innermost cause in a chain of exceptions, as one line; an error of Wasmline takes precedence."""
    causes = _OURS.findall(text) or _CAUSE.findall(text)
    return causes[-1].strip() if causes else text.strip().splitlines()[0]


def _ours(kinds: tuple[type[WasmlineError], ...]) -> re.Pattern[str]:
    names = "|".join(kind.__name__ for kind in kinds)
    return re.compile(rf"^\s*wasmline\.errors\.({names}): (.*)$", re.MULTILINE)
