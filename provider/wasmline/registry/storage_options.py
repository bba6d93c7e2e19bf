"""The login to object stores: options of fsspec's drivers, for the storages that a thread opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

DriverOptions = Mapping[str, Mapping[str, Any]]
"""By the protocol of a URL, such as ``s3``: arguments of fsspec's driver, such as ``key`` and ``secret``."""

_OPTIONS: ContextVar[DriverOptions] = ContextVar("wasmline_storage_options", default=MappingProxyType({}))


@contextmanager
def storage_options(options: DriverOptions) -> Iterator[None]:
    """Open storages with these options in the block, in this thread alone. Those that are opened keep them."""
    token = _OPTIONS.set(options)
    try:
        yield
    finally:
        _OPTIONS.reset(token)


def options_of(url: str) -> Mapping[str, Any]:
    """Return the options with which a URL is opened now."""
    protocol, is_url, _ = url.partition("://")
    return _OPTIONS.get().get(protocol, {}) if is_url else {}
