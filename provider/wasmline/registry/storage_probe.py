"""Tries a storage or a registry: writes and reads a file."""

from __future__ import annotations

import uuid
from typing import Any

from wasmline.errors import InvalidLocation, RegistryUnavailable
from wasmline.printable import bounded_line
from wasmline.registry import s3_errors
from wasmline.registry.object_storage import ObjectStorage
from wasmline.registry.storage import open_storage
from wasmline.registry.storage_options import options_of

CONTENT = b"wasmline"

NAME = ".wasmline_probe"
"""The file of a probe. In an object store it is always the same, so that no more than one stays."""

PROTOCOLS = ("file", "s3", "s3a", "gs", "abfs", "abfss")
"""The protocols of URLs that are tried: a probe asks no other servers than object stores."""


def is_tried(url: str) -> bool:
    """Return whether a URL is that of a folder on a disk or of an object store."""
    protocol, is_url, _ = url.partition("://")
    return "::" not in url and (not is_url or protocol in PROTOCOLS)


def probe_registry(url: str) -> None:
    """Write a file to the root of a registry, and read it.

    In an object store it is the file that each writer creates once, so that no right to delete is needed.
    Raises RegistryUnavailable, or RegistryMisconfigured for a store without conditional writes.
    """
    storage = open_storage(url)
    if isinstance(storage, ObjectStorage):
        storage.probe()
    elif refusal := probe_storage(url):
        raise RegistryUnavailable(refusal)


def probe_storage(url: str) -> str:
    """Write a file below a URL, read it and remove it. A folder on a disk is created if it is missing.

    Returns "", or why the file could not be removed. Raises RegistryUnavailable for another step that failed.
    """
    from fsspec.core import url_to_fs
    from fsspec.implementations.local import LocalFileSystem

    step = "opened"
    try:
        filesystem, root = url_to_fs(url, **options_of(url))
        is_disk = isinstance(filesystem, LocalFileSystem)
        path = f"{root.rstrip('/')}/{NAME}"
        step = "written to"
        if is_disk:  # a driver of an object store would create the bucket
            filesystem.makedirs(root, exist_ok=True)
            path = f"{path}-{uuid.uuid4().hex}"  # a known name could be a link that another user has made
        filesystem.pipe_file(path, CONTENT)
        step = "read"
        found: Any = filesystem.cat_file(path)
        if found != CONTENT:
            raise OSError(f"{path} has other bytes than were written")
    except Exception as error:  # a driver may raise anything
        raise RegistryUnavailable(f"{url} cannot be {step}: {_reason(error, url)}") from error
    try:
        filesystem.rm_file(path)
    except Exception as error:
        return f"{path} cannot be removed: {_reason(error, url)}"
    return ""


def require_hadoop_url(url: str) -> None:
    """Raise InvalidLocation for a URL of fsspec that Hadoop opens under another name, or not at all."""
    protocol, is_url, rest = url.partition("://")
    if "::" in url or (is_url and protocol == "memory"):
        raise InvalidLocation(f"{url} is a URL of fsspec alone, which Spark cannot open", location="storage")
    if is_url and protocol == "s3":
        raise InvalidLocation(f"Hadoop's client of S3 opens s3a:// alone: write s3a://{rest}", location="storage")


def _reason(error: Exception, url: str) -> str:
    told = s3_errors.remedy(error, options_of(url)) or bounded_line(getattr(error, "strerror", None) or error)
    return told or type(error).__name__
