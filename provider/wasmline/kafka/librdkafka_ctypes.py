"""Calls the librdkafka that confluent-kafka has loaded, through ctypes, where that package's methods fall short.

``committed_offset_store`` and ``reconnecting_clients`` need it until the client is fixed, ``compiled_columns`` always.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, cimpl
from confluent_kafka.admin import AdminClient

from wasmline.errors import ClientClosed, ClientUntested, InexactMetadata
from wasmline.kafka.config import VARIABLE

KNOWN_CLIENTS = ("2.15.1", "2.16.1")
"""Releases of confluent-kafka whose objects are known to begin with the handle of librdkafka.

Others are tried in a process of its own first: where an object begins with something else, its use is a crash.
"""

CLIENT = str(confluent_kafka.__version__)
"""The release of this process's client."""

TRIAL = "from wasmline.kafka.librdkafka_ctypes import Librdkafka; Librdkafka(is_trial=True)"
"""What a trial runs."""

SEARCH_PATH = "import sys; sys.path[:] = sys.argv[1:]\n"
"""Runs before the trial, in an interpreter without ``site``, which runs code of folders on the path."""

TRIAL_TIMEOUT_S = 60.0

KILLS = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
"""Statuses of a trial that was ended from outside."""

UNSET = -1001
"""``RD_KAFKA_OFFSET_INVALID``: no offset."""


class Partition(ctypes.Structure):
    """``rd_kafka_topic_partition_t`` of rdkafka.h."""

    _fields_ = [
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("private", ctypes.c_void_p),
    ]


class PartitionList(ctypes.Structure):
    """``rd_kafka_topic_partition_list_t`` of rdkafka.h."""

    _fields_ = [("cnt", ctypes.c_int), ("size", ctypes.c_int), ("elems", ctypes.POINTER(Partition))]


_List = ctypes.POINTER(PartitionList)
_OnCommit = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Handle = _Event = _Queue = _Error = _Group = ctypes.c_void_p

NO_CALLBACK = _OnCommit(lambda handle, error, partitions, opaque: None)
"""The callback of commits whose answer is polled for: without one, the library queues a second answer for the client's
own callback, which stays in memory until the client is polled."""

_calls: Counter[tuple[int, int]] = Counter()
"""Running calls, by the identities of their client and of their thread."""

_closing: set[int] = set()
"""Consumers that are being closed, by their identity."""

_changed = threading.Condition()
"""Guards both."""

FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "version": (ctypes.c_int,),
    "name": (ctypes.c_char_p, _Handle),
    "opaque": (ctypes.c_void_p, _Handle),
    "conf": (ctypes.c_void_p, _Handle),
    "conf_get": (ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)),
    "fatal_error": (ctypes.c_int, _Handle, ctypes.c_char_p, ctypes.c_size_t),
    "mem_malloc": (ctypes.c_void_p, _Handle, ctypes.c_size_t),
    "topic_partition_list_new": (_List, ctypes.c_int),
    "topic_partition_list_add": (ctypes.POINTER(Partition), _List, ctypes.c_char_p, ctypes.c_int32),
    "topic_partition_list_copy": (_List, _List),
    "topic_partition_list_set_offset": (ctypes.c_int, _List, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64),
    "topic_partition_list_destroy": (None, _List),
    "controllerid": (ctypes.c_int32, _Handle, ctypes.c_int),
    "brokers_add": (ctypes.c_int, _Handle, ctypes.c_char_p),
    "committed": (ctypes.c_int, _Handle, _List, ctypes.c_int),
    "commit_queue": (ctypes.c_int, _Handle, _List, _Queue, _OnCommit, ctypes.c_void_p),
    "queue_new": (_Queue, _Handle),
    "queue_poll": (_Event, _Queue, ctypes.c_int),
    "queue_destroy": (None, _Queue),
    "queue_get_partition": (_Queue, _Handle, ctypes.c_char_p, ctypes.c_int32),
    "queue_forward": (None, _Queue, _Queue),
    "topic_name": (ctypes.c_char_p, ctypes.c_void_p),
    "message_errstr": (ctypes.c_char_p, ctypes.c_void_p),
    "event_error": (ctypes.c_int, _Event),
    "event_topic_partition_list": (_List, _Event),
    "event_destroy": (None, _Event),
    "consumer_group_metadata_read": (_Error, ctypes.POINTER(_Group), ctypes.c_char_p, ctypes.c_size_t),
    "consumer_group_metadata_destroy": (None, _Group),
    "send_offsets_to_transaction": (_Error, _Handle, _List, _Group, ctypes.c_int),
    "error_code": (ctypes.c_int, _Error),
    "error_string": (ctypes.c_char_p, _Error),
    "error_is_fatal": (ctypes.c_int, _Error),
    "error_is_retriable": (ctypes.c_int, _Error),
    "error_txn_requires_abort": (ctypes.c_int, _Error),
    "error_destroy": (None, _Error),
}
"""The functions used, without their prefix: the type of the result, then those of the arguments."""


class Entry(NamedTuple):
    """One element of a list of partitions, copied out of the library's memory. ``error`` 0: none."""

    topic: str
    partition: int
    offset: int = UNSET
    metadata: bytes = b""
    error: int = 0


class Librdkafka:
    """Its functions by name, without their prefix: ``library["queue_new"](handle)``.

    The constructor raises InexactMetadata unless client and library have the layout declared here; that needs no
    broker. Raises ClientUntested where this cannot be known now. ``is_trial``: this process may crash.
    """

    def __init__(self, *, is_trial: bool = False) -> None:
        if not is_trial and CLIENT not in KNOWN_CLIENTS and (problem := trial(CLIENT, TRIAL)):
            raise InexactMetadata(f"confluent-kafka {CLIENT} cannot be called as its earlier releases can: {problem}")
        try:
            # Symbols are resolved among the extension's dependencies: this loads nothing and needs no path.
            self._library = ctypes.CDLL(cimpl.__file__)
            self._functions = {name: _declared(self._library, name, *types) for name, types in FUNCTIONS.items()}
        except (OSError, AttributeError) as error:
            raise InexactMetadata(
                f"librdkafka cannot be called in this installation of confluent-kafka: {error}"
            ) from error
        self._check_version()
        self._check_layout()
        self._check_handles()

    def __getitem__(self, name: str) -> Any:
        return self._functions[name]

    def address(self, name: str) -> int:
        """Return the address of a function, for compiled code. Raises AttributeError if there is none."""
        return ctypes.cast(getattr(self._library, f"rd_kafka_{name}"), ctypes.c_void_p).value or 0

    def handle(self, client: Consumer | Producer | AdminClient) -> int:
        """Return the client's ``rd_kafka_t *``: the first field behind the object's head. Raises ClientClosed."""
        if not isinstance(client, Consumer | Producer | AdminClient):
            raise TypeError(f"a {type(client).__name__} is not a client of confluent-kafka")
        handle = ctypes.c_void_p.from_address(id(client) + object.__basicsize__).value
        if not handle:
            raise ClientClosed(f"the {type(client).__name__} was closed before this call")
        if self["opaque"](handle) != id(client):  # the library stores its owner
            raise InexactMetadata(f"the handle of a {type(client).__name__} belongs to another object")
        return handle

    def fatal_error(self, client: Producer) -> KafkaError | None:
        """Return the error that has ended a producer of the calling thread, if one has. Raises ClientClosed."""
        text = ctypes.create_string_buffer(512)
        code = self["fatal_error"](self.handle(client), text, len(text))
        return KafkaError(code, text.value.decode(errors="replace"), True) if code else None

    @contextmanager
    def lent(self, client: Consumer | Producer, *, is_last: bool = False) -> Iterator[int]:
        """Lend the client's handle for calls. Raises ClientClosed.

        The function ``close`` waits for those with a consumer; a producer is closed by the thread that makes them.
        ``is_last``: also to the client's own callbacks while it is closed.
        """
        call = id(client), threading.get_ident()
        with _changed:
            if id(client) in _closing and not is_last:
                raise ClientClosed(f"the {type(client).__name__} is about to be closed")
            handle = self.handle(client)
            _calls[call] += 1
        try:
            yield handle
        finally:
            with _changed:
                _calls[call] -= 1
                if not _calls[call]:
                    del _calls[call]
                _changed.notify_all()

    @contextmanager
    def partitions(self, entries: Iterable[Entry]) -> Iterator[Any]:
        """Lend a list in the library's memory, which frees the metadata together with the list."""
        made = self["topic_partition_list_new"](0)
        try:
            for entry in entries:
                element = self["topic_partition_list_add"](made, entry.topic.encode(), entry.partition).contents
                element.offset = entry.offset
                if entry.metadata:
                    element.metadata = self["mem_malloc"](None, len(entry.metadata))
                    element.metadata_size = len(entry.metadata)
                    ctypes.memmove(element.metadata, entry.metadata, len(entry.metadata))
            yield made
        finally:
            self["topic_partition_list_destroy"](made)

    @contextmanager
    def group(self, metadata: bytes) -> Iterator[Any]:
        """Lend the result of ``Consumer.consumer_group_metadata`` as an ``rd_kafka_consumer_group_metadata_t *``."""
        made = ctypes.c_void_p()
        self.check(self["consumer_group_metadata_read"](ctypes.byref(made), metadata, len(metadata)))
        try:
            yield made
        finally:
            self["consumer_group_metadata_destroy"](made)

    def check(self, error: int | None) -> None:
        """Raise an ``rd_kafka_error_t *`` with its flags, and free it; NULL is success."""
        if not error:
            return
        try:
            code, reason = self["error_code"](error), self["error_string"](error).decode(errors="replace")
            flags = [bool(self[f"error_{flag}"](error)) for flag in ("is_fatal", "is_retriable", "txn_requires_abort")]
        finally:
            self["error_destroy"](error)
        raise KafkaException(KafkaError(code, reason, *flags))

    def _check_version(self) -> None:
        text, number = confluent_kafka.libversion()
        if self["version"]() != number:
            raise InexactMetadata(f"confluent-kafka uses librdkafka {text}, and another one is loaded in this process")

    def _check_layout(self) -> None:
        """Let the library write and copy the structures declared here, and compare."""
        first, second = Entry("layout", 7, 1 << 40), Entry("layout", 8, 9, b"twenty-four characters..")
        with self.partitions([first._replace(offset=UNSET), second]) as made:
            self["topic_partition_list_set_offset"](made, b"layout", first.partition, first.offset)
            copy = self["topic_partition_list_copy"](made)
            try:
                seen = entries_of(copy)
            finally:
                self["topic_partition_list_destroy"](copy)
        if seen != [first, second]:
            raise InexactMetadata(f"librdkafka {confluent_kafka.libversion()[0]} has another layout of lists: {seen}")

    def _check_handles(self) -> None:
        """Find the handles of clients that connect to nothing, and ask the library for their names."""
        label = f"probe-{uuid.uuid4()}"
        settings = {"client.id": label, "log_level": "0"}
        clients = (
            (Consumer({**settings, "group.id": label}), "consumer"),
            (Producer(settings), "producer"),
            (AdminClient({**settings}), "producer"),  # the library has no kind of its own for it
        )
        for client, kind in clients:
            name = self["name"](self.handle(client)).decode()
            if not name.startswith(f"{label}#{kind}-"):
                raise InexactMetadata(f"the handle of {label} is that of {name}")


_trying = threading.Lock()
"""Held during a trial."""


def trial(client: str, code: str) -> str:
    """Return why a release of the client failed in a process that ran ``code``, "" if it did not.

    Raises ClientUntested where that process could not be started or was ended from outside.
    """
    with _trying:
        return _tried(client, code)


@cache
def _tried(client: str, code: str) -> str:
    if not sys.executable:
        return "this process has no sys.executable with which to try it"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLE)}
    try:
        ended = subprocess.run(
            [sys.executable, "-I", "-S", "-c", SEARCH_PATH + code, *filter(os.path.isabs, sys.path)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TRIAL_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClientUntested(f"confluent-kafka {client} could not be tried in a process of its own: {error}") from error
    if ended.returncode in KILLS:
        raise ClientUntested(f"the trial of confluent-kafka {client} was ended by signal {-ended.returncode}")
    last_line = (ended.stderr.splitlines() or [f"status {ended.returncode}"])[-1]
    return last_line if ended.returncode else ""


def _after_fork() -> None:
    global _trying, _changed
    _trying, _changed = threading.Lock(), threading.Condition()  # threads that the fork does not copy may hold them
    _calls.clear()
    _closing.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def close(consumer: Consumer) -> None:
    """Close a client once no call has its handle.

    The client's own ``close`` waits for calls of its own methods only: any other call would use freed memory.
    """
    try:
        with _changed:
            _closing.add(id(consumer))
            _calls.pop((id(consumer), threading.get_ident()), None)  # interrupted before it was counted off
            _changed.wait_for(lambda: not any(calls for (client, _), calls in _calls.items() if client == id(consumer)))
        consumer.close()
    finally:
        with _changed:
            _closing.discard(id(consumer))


def entries_of(partitions: Any) -> list[Entry]:
    """Return a copy of a list of the library; NULL is empty."""
    elements = (partitions.contents.elems[index] for index in range(partitions.contents.cnt if partitions else 0))
    return [Entry(each.topic.decode(), each.partition, each.offset, _metadata(each), each.err) for each in elements]


def _metadata(element: Any) -> bytes:
    return ctypes.string_at(element.metadata, element.metadata_size) if element.metadata else b""


def _declared(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, f"rd_kafka_{name}")
    function.restype, function.argtypes = result, arguments
    return function
