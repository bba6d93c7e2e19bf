"""Tries a storage: writes, reads and removes a file."""

from __future__ import annotations

import uuid
from typing import Any

from wasmline.errors import RegistryUnavailable
from wasmline.printable import bounded_line
from wasmline.registry import s3_errors
from wasmline.registry.storage_options import options_of

CONTENT = b"wasmline"


def can_open(url: str) -> bool:
    """Return whether fsspec can open a URL on this machine: it may lack the driver, or what that needs."""
    from fsspec.core import url_to_fs

    try:
        url_to_fs(url, **options_of(url))
    except Exception:  # a driver may raise anything
        return False
    return True


def probe_storage(url: str) -> None:
    """Write a file of a new name below a URL, read it and remove it. A folder on a disk is created if it is missing.

    Raises RegistryUnavailable with the step that failed.
    """
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    step = "opened"
    try:
        filesystem, root = url_to_fs(url, **options_of(url))
        path = f"{root.rstrip('/')}/wasmline-probe-{uuid.uuid4().hex}"
        step = "written to"
        if isinstance(filesystem, LocalFileSystem):  # a driver of an object store would create the bucket
            filesystem.makedirs(root, exist_ok=True)
        filesystem.pipe_file(path, CONTENT)
        step = "read"
        found: Any = filesystem.cat_file(path)
        if found != CONTENT:
            raise OSError(f"{path} has other bytes than were written")
        step = "cleared of the probe's file"
        filesystem.rm_file(path)
    except Exception as error:  # a driver may raise anything
        told = s3_errors.remedy(error) or bounded_line(getattr(error, "strerror", None) or error)
        raise RegistryUnavailable(f"{url} cannot be {step}: {told or type(error).__name__}") from error
