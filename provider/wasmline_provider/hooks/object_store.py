"""The login to an object store, from Airflow's own ``aws`` connection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from wasmline.errors import InvalidLocation

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from wasmline.registry.storage_options import DriverOptions

FIELD = "object_store_conn_id"
"""The field of a ``wasmline`` connection with the id of an ``aws`` connection."""

READ = frozenset(
    {"aws_access_key_id", "aws_secret_access_key", "aws_session_token", "endpoint_url", "region_name"},
)
"""What is read of the connection's extra. Others, such as a role to assume, would give another login than is meant."""

LOGIN_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
)
"""Variables of AWS's clients with a login."""

IGNORED_ENDPOINTS = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"
"""The variable with which AWS's clients ignore those with an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStoreLogin:
    """Keys, address and region of an S3 store; "" for one that its client finds by itself."""

    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    endpoint_url: str = ""
    region: str = ""

    @classmethod
    def of(cls, connection: Connection) -> ObjectStoreLogin:
        """Return the login of a connection of Airflow's type ``aws``. Raises InvalidLocation."""
        name, extra = connection.conn_id, connection.extra_dejson
        if connection.conn_type != "aws":
            raise InvalidLocation(
                f"connection {name} is of type {connection.conn_type}, and object stores are logged in to with an aws "
                f"connection: name one as {FIELD}, or leave it out for the login that the machines have",
                location=FIELD,
            )
        if others := sorted(name for name, value in extra.items() if name not in READ and value not in (None, "")):
            raise InvalidLocation(
                f"connection {name} has {', '.join(others)}, and only keys, aws_session_token, endpoint_url and "
                "region_name are used: make a connection without, or leave it out for the login that the machines have",
                location=FIELD,
            )
        access_key = connection.login or extra.get("aws_access_key_id") or ""
        secret_key = connection.password or extra.get("aws_secret_access_key") or ""
        if bool(access_key) != bool(secret_key):
            raise InvalidLocation(
                f"connection {name} has one of the access key and the secret key: set both, or none", location=FIELD
            )
        return cls(
            access_key=access_key,
            secret_key=secret_key,
            session_token=extra.get("aws_session_token") or "",
            endpoint_url=extra.get("endpoint_url") or "",
            region=extra.get("region_name") or "",
        )

    def identity(self) -> tuple[str, str, str]:
        """Return endpoint, region and id of the access key, "" for a temporary one: each reading may give another."""
        return self.endpoint_url, self.region, "" if self.session_token else self.access_key

    def driver_options(self) -> DriverOptions:
        """Return the options with which fsspec opens a URL.

        With keys, none of the login of fsspec's own configuration stays: a token of another login would make them
        invalid.
        """
        options: dict[str, Any] = {
            "key": self.access_key,
            "secret": self.secret_key,
            "token": self.session_token,
            "endpoint_url": self.endpoint_url,
            "client_kwargs": {"region_name": self.region} if self.region else {},
        }
        given = {name: value for name, value in options.items() if value}
        if self.access_key:
            given = {"token": None, "anon": False, **given}
        return {"s3": given, "s3a": given}

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Return an environment with this login, for fsspec in a driver, and for Spark, which gives it to Hadoop.

        With keys, none of the login of ``base`` stays: a token of another login would make them invalid. With an
        address, no other one of S3 stays. Fsspec takes an option of its own variables before one of its files.
        """
        ours = {
            **{f"FSSPEC_S3_{name.upper()}": json.dumps(value) for name, value in self.driver_options()["s3"].items()},
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.session_token,
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ENDPOINT_URL_S3": self.endpoint_url,  # wins over the variable above
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
        }
        dropped = (LOGIN_VARIABLES if self.access_key else ()) + ((IGNORED_ENDPOINTS,) if self.endpoint_url else ())
        kept = {name: value for name, value in base.items() if name not in dropped}
        return {**kept, **{name: value for name, value in ours.items() if value}}
