"""Calls that block, awaited in daemon threads of their own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def call_in_thread(call: Callable[[], T]) -> T:
    """Return the result of a call that may block for long, such as on a cluster that is down.

    asyncio's own threads are a few that all triggers share, and the triggerer's end would wait for them. The call has
    the caller's context, by which Airflow tells to which log its lines belong.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(method: Callable[[Any], None], value: object) -> None:
        if not done.done():  # nor cancelled
            method(value)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], object] = (done.set_result, context.run(call))
        except BaseException as error:
            outcome = (done.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: the triggerer ended
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="wasmline-trigger", daemon=True).start()
    return await done
