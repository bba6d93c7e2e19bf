"""A slow HTTP service with statistics of its calls: rate, concurrency, and overlapping calls for a customer."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType

from enriching.orders import UNKNOWN
from wasmline.local.ports import HOST


@dataclass(slots=True)
class CallStats:
    """The calls of one client. Times are seconds of a monotonic clock.

    ``met`` counts calls for a customer during another call for the same one: their orders were not in order.
    """

    calls: int = 0
    began: float = 0.0
    ended: float = 0.0
    at_once: int = 0
    met: int = 0
    _under_way: Counter[str] = field(default_factory=Counter)

    @property
    def rate(self) -> float:
        """Calls per second, from the first to the last."""
        return self.calls / (self.ended - self.began) if self.ended > self.began else 0.0

    def begin(self, customer: str, now: float) -> None:
        """Record the start of a call."""
        self.began = self.began or now
        self.met += self._under_way[customer] > 0
        self._under_way[customer] += 1
        self.at_once = max(self.at_once, self._under_way.total())

    def end(self, customer: str, now: float) -> None:
        """Record the end of a call."""
        self._under_way[customer] -= 1
        self.calls += 1
        self.ended = now


class SlowService:
    """Responds to ``GET /customers/NAME`` after ``delay`` seconds, independently for each call, while it is open.

    It listens on ``port`` of ``host``, by default on a free one of this machine alone. It supports only the HTTP of its
    clients: requests without a body, on persistent connections.
    """

    def __init__(self, delay: float, *, host: str = HOST, port: int = 0) -> None:
        self.delay = delay
        self.port = port
        self._host = host
        self.book = CallStats()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="slow-service", daemon=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def new_book(self) -> CallStats:
        """Start new statistics and return them."""
        self.book = CallStats()
        return self.book

    def __enter__(self) -> SlowService:
        self._thread.start()
        opening = asyncio.start_server(self._visit, self._host, self.port)
        self._server = asyncio.run_coroutine_threadsafe(opening, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        visits = asyncio.all_tasks() - {asyncio.current_task()}
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(await self._answer(request))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: bytes) -> bytes:
        customer = request.split(b" ", 2)[1].rpartition(b"/")[2].decode()
        book = self.book
        book.begin(customer, time.monotonic())
        await asyncio.sleep(self.delay)
        book.end(customer, time.monotonic())
        if customer == UNKNOWN:
            return _response("404 Not Found", {"error": "no such customer"})
        segment = ("new", "regular", "loyal")[sum(customer.encode()) % 3]
        return _response("200 OK", {"id": customer, "segment": segment})


def _response(status: str, body: dict[str, str]) -> bytes:
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content
