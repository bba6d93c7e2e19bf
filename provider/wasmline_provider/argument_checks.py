"""Checks arguments of operators and triggers when the DAG is parsed; what templates render, when the task runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from math import inf, nan
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from wasmline.errors import InvalidJob, WasmlineError
from wasmline.job_specs import require_job_name
from wasmline.topic_partitions import TOPIC_NAME

if TYPE_CHECKING:
    import msgspec

KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "None",
    "object": "a mapping",
    "str": "text",
}
"""The JSON types of msgspec's errors, in words."""

LOCATION = re.compile(r"/|(?!file://([^/]|$))[A-Za-z][A-Za-z0-9+.:-]*:/")
"""How an absolute folder or a URL begins; the path after ``file://`` is absolute, too."""


def is_final(value: Any) -> bool:
    """Return whether an argument has its final value: it holds neither a template nor another task's result."""
    if isinstance(value, Mapping):
        return all(is_final(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple):
        return all(is_final(each) for each in value)
    return (
        value is None
        or isinstance(value, int | float | datetime | PurePath)
        or (isinstance(value, str) and "{" not in value)
    )


def given(value: Any) -> Any:
    """Return an argument, or None if its template rendered to nothing."""
    return None if isinstance(value, str) and value.strip() in ("", "None") else value


def given_number(value: int | str | None) -> int | None:
    """Return a whole number that a template may have rendered as text, or None if it rendered to nothing."""
    number = given(value)
    return None if number is None else int(number)


def require_jobs(*jobs: Any) -> None:
    """Raise InvalidJob for a value that is no name of a job."""
    for job in jobs:
        if is_final(job):
            if not isinstance(job, str):
                raise InvalidJob(f"a job's name is text, got {job!r}")
            require_job_name(job)


def require_set(error: type[WasmlineError], **values: Any) -> None:
    """Raise ``error`` for an argument that is None or "", as a template renders nothing."""
    for name, value in values.items():
        if is_final(value) and given(value) is None:
            raise error(f"{name} is {value!r}: it must be set")


def require_text(error: type[WasmlineError], **values: Any) -> None:
    """Raise ``error`` for an argument that is empty."""
    for name, value in values.items():
        if is_final(value) and not (isinstance(value, str) and value.strip()):
            raise error(f"{name} is {value!r}: it must be set, as text")


def require_texts(error: type[WasmlineError], **values: Any) -> None:
    """Raise ``error`` for an argument that is no list of texts, such as one text; None and "" are none."""
    for name, value in values.items():
        if is_final(value) and given(value) is not None:
            require_list(error, name, value)


def require_list(error: type[WasmlineError], name: str, value: Any) -> None:
    """Raise ``error`` for a value that is no list of texts."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        such_as = f", such as {[value]!r}" if isinstance(value, str) else ""
        raise error(f"{name} is {value!r}: a list of texts{such_as}")


def require_mapping(error: type[WasmlineError], kind: type[object] = object, **values: Any) -> None:
    """Raise ``error`` for an argument that is no mapping of texts to values of a kind; None and "" are none."""
    for name, value in values.items():
        if not is_final(value) or given(value) is None:
            continue
        if not isinstance(value, Mapping):
            raise error(f"{name} is {value!r}: a mapping, such as a dict")
        for key, each in value.items():
            if not isinstance(key, str) or not isinstance(each, kind):
                raise error(f"{name} has {key!r}: {each!r}; write each as text")


def require_locations(error: type[WasmlineError], **urls: Any) -> None:
    """Raise ``error`` for one that is no absolute folder and no URL; None is that of the ``wasmline`` connection."""
    require_text(error, **{name: url for name, url in urls.items() if url is not None})
    for name, url in urls.items():
        if is_final(url) and given(url) is not None:
            require_absolute(error, name, url)


def require_absolute(error: type[WasmlineError], name: str, url: Any, **details: Any) -> None:
    """Raise ``error`` for a relative folder, and for what is no text."""
    if not isinstance(url, str) or not LOCATION.match(url.strip()):
        fault = f"{name} is {url!r}, neither an absolute folder nor a URL: it would be another folder on each machine"
        raise error(fault, **details)


def is_true(value: Any) -> bool:
    """Return whether a flag is set, which may be text, as rendered by a template."""
    return str(value).strip().lower() == "true"


def require_flags(error: type[WasmlineError], **values: Any) -> None:
    """Raise ``error`` for an argument that is neither true nor false."""
    for name, value in values.items():
        if is_final(value) and str(value).strip().lower() not in ("true", "false"):
            raise error(f"{name} is {value!r}: True or False")


def require_names(error: type[WasmlineError], **values: Any) -> None:
    """Raise ``error`` for an argument that can be no name of a topic, a transform or a model, whose names are shorter.

    None and "" are none.
    """
    for name, value in values.items():
        if is_final(value) and given(value) is not None and not TOPIC_NAME.fullmatch(str(value)):
            raise error(f"{name} is {value!r}: a name has letters, digits, '.', '_' and '-'")


def require_numbers(
    error: type[WasmlineError], least: float, most: float = inf, kind: type[int | float] = float, **values: Any
) -> None:
    """Raise ``error`` for an argument that is no number, as text or not, from ``least`` to ``most``; None is none."""
    for name, value in values.items():
        if not is_final(value) or given(value) is None:
            continue
        try:
            number = kind(value)
        except (TypeError, ValueError, OverflowError):
            number = nan
        if not least <= number <= most:
            noun = "a whole number" if kind is int else "a number"
            bounds = f"of at least {least}" if most == inf else f"from {least} to {most}"
            raise error(f"{name} must be {noun} {bounds}, got {value!r}")


def conversion_fault(error: msgspec.ValidationError) -> str:
    """Return what is wrong with an argument that has another type than its specification: its name, and the types."""
    told, _, path = str(error).replace("Invalid enum value", "Unknown value").rpartition(" - at `")
    if not told:
        return path

    def in_words(kinds: re.Match[str]) -> str:
        return " or ".join(KINDS.get(each, each) for each in kinds[1].split(" | "))

    words = re.sub(r"`([^`]+)`", in_words, told)
    name = re.sub(r"\$\.((stream|function)\.)*", "", path.replace("`", ""))
    return f"{name}: {words[:1].lower()}{words[1:]}"


def require_version(version: Any) -> None:
    """Raise InvalidReference for a value that is no version; None and "" are none."""
    from wasmline.registry.semver import Semver

    if is_final(version) and given(version) is not None:
        Semver.parse(str(version))
