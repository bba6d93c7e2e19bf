"""What the Python contestants do with a record, and a note of each time they did it. For any Python >= 3.11."""

from __future__ import annotations

import asyncio
import http.client
import threading
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from support.java_peer.java_peer import micros

Work = Callable[[int, int], None]
AsyncWork = Callable[[int, int], Awaitable[None]]


class Call(NamedTuple):
    """One call of a handler: seconds of a clock that all threads share, and the record's coordinates."""

    begin: float
    end: float
    partition: int
    offset: int


class Calls:
    """Handles records as ``work`` says (as Work.java does), and sets ``enough`` after the call that is ``wanted``."""

    def __init__(self, work: str, wanted: int) -> None:
        self.made: list[tuple[float, float, int, int]] = []
        """What Call says of each, without its cost: all of this counts as the contestant's time."""
        self.enough = threading.Event()
        self.cpu_s = 0.0
        """CPU time of the process, from the first call to the one that is ``wanted``."""
        self._wanted = wanted
        kind, _, argument = work.partition(" ")
        self._work, self._async_work = KINDS[kind](argument)

    def handle(self, partition: int, offset: int) -> None:
        """Do the work in this thread."""
        begin = time.perf_counter()
        self._work(partition, offset)
        self._note(begin, partition, offset)

    async def handle_async(self, partition: int, offset: int) -> None:
        """Do the work on the event loop."""
        begin = time.perf_counter()
        await self._async_work(partition, offset)
        self._note(begin, partition, offset)

    def _note(self, begin: float, partition: int, offset: int) -> None:
        if not self.made:
            self._cpu_before = time.process_time()
        self.made.append((begin, time.perf_counter(), partition, offset))
        if len(self.made) >= self._wanted and not self.enough.is_set():
            self.cpu_s = time.process_time() - self._cpu_before
            self.enough.set()


def _none(_: str) -> tuple[Work, AsyncWork]:
    async def nothing(partition: int, offset: int) -> None:
        pass

    return lambda *at: None, nothing


def _sleep(most: str) -> tuple[Work, AsyncWork]:
    limit = int(most)

    def seconds(partition: int, offset: int) -> float:
        return micros(partition, offset, limit) / 1e6

    return lambda *at: time.sleep(seconds(*at)), lambda *at: asyncio.sleep(seconds(*at))


def _fixed(microseconds: str) -> tuple[Work, AsyncWork]:
    seconds = int(microseconds) / 1e6
    return lambda *at: time.sleep(seconds), lambda *at: asyncio.sleep(seconds)


def _http(url: str) -> tuple[Work, AsyncWork]:
    return _Get(url), _AsyncGet(url)


KINDS: dict[str, Callable[[str], tuple[Work, AsyncWork]]] = {
    "none": _none,
    "sleep": _sleep,
    "fixed": _fixed,
    "http": _http,
}


class _Get:
    """A GET with the standard library's client, over a connection that each thread keeps."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._kept = threading.local()

    def __call__(self, partition: int, offset: int) -> None:
        connection = getattr(self._kept, "connection", None)
        if connection is None:
            connection = self._kept.connection = http.client.HTTPConnection(self._address.netloc)
        connection.request("GET", self._address.path)
        response = connection.getresponse()
        response.read()
        _check(response.status)


class _AsyncGet:
    """A GET over asyncio's streams. It keeps connections, and reads what the benchmark's server writes, no more."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._host, self._port = address.hostname, address.port
        self._request = f"GET {address.path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode()
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def __call__(self, partition: int, offset: int) -> None:
        streams = self._idle.pop() if self._idle else await asyncio.open_connection(self._host, self._port)
        reader, writer = streams
        writer.write(self._request)
        head = await reader.readuntil(b"\r\n\r\n")
        _check(int(head.split(b" ", 2)[1]))
        self._idle.append(streams)


def _check(status: int) -> None:
    if status != 200:
        raise RuntimeError(f"the benchmark's server answered {status}")
