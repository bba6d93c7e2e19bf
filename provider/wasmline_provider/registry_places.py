"""Splits the URL of a registry, and leaves the login out of URLs."""

from __future__ import annotations

from typing import NamedTuple


class RegistryPlace(NamedTuple):
    """The folder of a registry: ``protocol`` of fsspec, ``file`` for a folder of the machine.

    ``authority`` is what follows ``//`` of a URL, such as the bucket, without a user and a password; "" for a folder of
    the machine. ``folder`` begins with a slash, or is empty.
    """

    protocol: str
    authority: str
    folder: str


def registry_place(registry: str) -> RegistryPlace:
    """Return the place of a registry. Raises ValueError for a relative folder, which is another one elsewhere."""
    protocol, is_url, place = registry.partition("://")
    if not is_url:
        protocol, place = "file", registry
    if protocol == "file" and not place.startswith("/"):
        raise ValueError(f"the registry {registry!r} is not an absolute folder, and would be another one elsewhere")
    authority, slash, folder = _without_login(place).partition("/")
    return RegistryPlace(protocol.lower(), authority, f"{slash}{folder}")


def url_without_login(url: str) -> str:
    """Return a URL without a user and a password in it; a folder as it is."""
    protocol, is_url, place = url.partition("://")
    return f"{protocol}://{_without_login(place)}" if is_url else url


def _without_login(place: str) -> str:
    """Return what follows ``//`` of a URL without a user and a password."""
    authority, slash, folder = place.partition("/")
    user, _, host = authority.rpartition("@")
    if ":" in user:  # a password; else part of the name, such as the container of abfss://container@account/folder
        authority = host
    return f"{authority}{slash}{folder}"
