"""The ``wasmline`` connection: where modules, models and the data of jobs are, and the login to their object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from wasmline.errors import InvalidLocation, WasmlineError
from wasmline_provider.argument_checks import require_absolute
from wasmline_provider.hooks.object_store import FIELD, ObjectStoreLogin

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from wasmline.background_call import BackgroundCall

NAMES = ("registry", "models", "storage")
"""The fields of the connection with a location."""

TEST_TIMEOUT_S = 20.0
"""Maximum seconds for the tries of a test: clients of object stores try again for minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Locations:
    """Absolute folders or URLs, "" for one that is not known; ``login``: that to their object store.

    registry: the registry of modules, by fsspec.
    models: the registry of models, by fsspec.
    storage: the data of jobs, such as checkpoints, by Hadoop.
    """

    registry: str = ""
    models: str = ""
    storage: str = ""
    login: ObjectStoreLogin | None = None

    @contextmanager
    def opened(self) -> Iterator[Locations]:
        """Log in with ``login`` to what this thread opens in the block. What is opened stays logged in."""
        from wasmline.registry.storage_options import storage_options

        with storage_options(self.login.driver_options() if self.login else {}):
            yield self


class WasmlineHook(BaseHook):
    """Returns where modules, models and the data of jobs are, by a connection of type ``wasmline``.

    Example::

        with WasmlineHook().locate(registry=None).opened() as at:
            names = FilesystemRegistry(at.registry).names()

    :param wasmline_conn_id: the connection. The fields of its extra are ``registry``, ``models``, ``storage`` and
        ``object_store_conn_id``, each optional.
    """

    conn_name_attr = "wasmline_conn_id"
    default_conn_name = "wasmline_default"
    conn_type = "wasmline"
    hook_name = "Wasmline"

    def __init__(self, wasmline_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.wasmline_conn_id = wasmline_conn_id
        self._is_meant = wasmline_conn_id != self.default_conn_name
        self._has_warned = False

    def get_conn(self) -> Locations:
        """Return what the connection has. Raises InvalidLocation, AirflowNotFoundException."""
        return self._read(self.get_connection(self.wasmline_conn_id))

    async def aget_conn(self) -> Locations:
        """Return what the connection has, on an event loop."""
        return await self._aread(await self.aget_connection(self.wasmline_conn_id))

    def locate(self, **given: str | None) -> Locations:
        """Return each of ``given`` locations: as given, or for None or "", that of the connection; and its login.

        Only the default connection may be missing, if each location is given, and if this hook has not read it before:
        then the machine's login is used. Raises AirflowNotFoundException for one that is missing, which a retry may
        cure, PermissionError for one that this task may not read, and InvalidLocation if it has no such location.
        """
        try:
            connection = self.get_connection(self.wasmline_conn_id)
        except AirflowNotFoundException as error:
            return self._merged(self._without_connection(given, error), given)
        return self._merged(self._read(connection), given)

    async def alocate(self, **given: str | None) -> Locations:
        """Return each of ``given`` locations, on an event loop."""
        try:
            connection = await self.aget_connection(self.wasmline_conn_id)
        except AirflowNotFoundException as error:
            return self._merged(self._without_connection(given, error), given)
        return self._merged(await self._aread(connection), given)

    def test_connection(self) -> tuple[bool, str]:
        """Return whether each location of the connection can be used from here, and a sentence about each.

        The registry is read; models and storage are read, and a file is written to them, which is removed from storage.
        """
        from wasmline.background_call import BackgroundCall

        try:
            at = self.get_conn()
        except (InvalidLocation, AirflowNotFoundException) as error:  # Airflow tests it under another id
            return False, str(error).replace(f"connection {self.wasmline_conn_id}", "this connection")
        calls = {name: BackgroundCall(_test_of(name, at)) for name in NAMES if getattr(at, name)}
        if not calls:
            return False, f"The connection has none of {', '.join(NAMES)}: set those that your DAGs use."
        found = {name: _outcome(call) for name, call in calls.items()}
        told = " ".join(f"{name.capitalize()} {getattr(at, name)}: {text}." for name, (_, text) in found.items())
        return all(is_good for is_good, _ in found.values()), told

    def _read(self, connection: Connection) -> Locations:
        found, store = self._locations(connection)
        if not store:
            return found
        try:
            return replace(found, login=ObjectStoreLogin.of(self.get_connection(store)))
        except AirflowNotFoundException as error:
            raise self._missing_store(store) from error

    async def _aread(self, connection: Connection) -> Locations:
        found, store = self._locations(connection)
        if not store:
            return found
        try:
            return replace(found, login=ObjectStoreLogin.of(await self.aget_connection(store)))
        except AirflowNotFoundException as error:
            raise self._missing_store(store) from error

    def _locations(self, connection: Connection) -> tuple[Locations, str]:
        """Return the locations of a connection, and the id of that to their object store, "" for none."""
        self._is_meant = True  # from now on one that is missing is an error
        where, extra = f"connection {self.wasmline_conn_id}", connection.extra_dejson
        if connection.conn_type != self.conn_type:
            fault = f"{where} is of type {connection.conn_type}, not {self.conn_type}"
            raise InvalidLocation(fault, location=self.conn_name_attr)
        if unknown := sorted(extra.keys() - {*NAMES, FIELD}):
            fields = ", ".join((*NAMES, FIELD))
            raise InvalidLocation(f"{where} has no field {unknown[0]!r}: it has {fields}", location=unknown[0])
        values = {name: str(extra.get(name) or "").strip() for name in (*NAMES, FIELD)}
        for name in NAMES:
            if url := values[name]:
                require_absolute(InvalidLocation, f"{where}: {name}", url, location=name)
        found = Locations(registry=values["registry"], models=values["models"], storage=values["storage"])
        return found, values[FIELD]

    def _merged(self, known: Locations, given: Mapping[str, str | None]) -> Locations:
        urls = {name: given.get(name) or str(getattr(known, name)) for name in NAMES}
        for name in given:
            if not urls[name]:
                raise InvalidLocation(
                    f"{name} is not given, and connection {self.wasmline_conn_id} has none: set one of them",
                    location=name,
                )
            require_absolute(InvalidLocation, name, urls[name], location=name)
        return replace(known, registry=urls["registry"], models=urls["models"], storage=urls["storage"])

    def _without_connection(self, given: Mapping[str, str | None], error: Exception) -> Locations:
        """Return nothing, with which ``given`` is enough. Raises AirflowNotFoundException if it is not.

        Airflow answers the same while it cannot be asked: only the default connection is one that may not be meant.
        """
        lost = f"Airflow has no connection {self.wasmline_conn_id} for this task"
        if missing := " and ".join(name for name, url in given.items() if not url):
            raise AirflowNotFoundException(
                f"{missing} not given, and {lost}: add one of type {self.conn_type}, or set {missing}"
            ) from error
        if self._is_meant:
            raise AirflowNotFoundException(
                f"{lost}: add one of type {self.conn_type}, correct {self.conn_name_attr}, or leave it out for the "
                "login that the machines have"
            ) from error
        stores = [url for url in given.values() if url and "://" in url and not url.startswith("file://")]
        if stores and not self._has_warned:
            self._has_warned = True
            self.log.warning("%s: %s opened with the machine's login", lost, " and ".join(stores))
        return Locations()

    def _missing_store(self, store: str) -> AirflowNotFoundException:
        return AirflowNotFoundException(
            f"connection {self.wasmline_conn_id} names {store} as {FIELD}, and Airflow has no such connection"
        )


def _test_of(name: str, at: Locations) -> Callable[[], str]:
    """Return the test of one location, which returns what can be done with it."""

    def test() -> str:
        with at.opened():
            return _test_storage(at.storage) if name == "storage" else _test_registry(name, getattr(at, name))

    return test


def _test_registry(name: str, url: str) -> str:
    from wasmline.registry.storage import open_storage
    from wasmline.registry.storage_probe import PROTOCOLS, is_tried, probe_registry

    if not is_tried(url):
        raise InvalidLocation(f"not tried: a test opens a folder, or a URL of {', '.join(PROTOCOLS)}", location=name)
    kind = "modules" if name == "registry" else "models"
    count = len(open_storage(url).folders(kind))
    if name == "registry":
        return f"can be read; {kind}: {count}"
    probe_registry(url)
    return f"can be read and written; {kind}: {count}"


def _test_storage(url: str) -> str:
    from wasmline.registry.storage_probe import PROTOCOLS, is_tried, probe_storage, require_hadoop_url

    require_hadoop_url(url)
    if not is_tried(url):
        return f"not tried: a test opens a folder, or a URL of {', '.join(PROTOCOLS)}, and Spark may open others"
    told = "can be read and written"
    return f"{told}, but {refusal}; Spark removes files of checkpoints" if (refusal := probe_storage(url)) else told


def _outcome(call: BackgroundCall[str]) -> tuple[bool, str]:
    if not call.wait(max(0.0, TEST_TIMEOUT_S - call.age)):
        return False, f"no answer in {TEST_TIMEOUT_S:g} s"
    try:
        return True, call.result()
    except WasmlineError as error:
        return False, str(error)
