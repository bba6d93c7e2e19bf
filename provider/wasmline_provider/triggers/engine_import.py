"""Imports the engine in a thread, once for all triggers: on the event loop it would hold up every trigger."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

_LOCK = threading.Lock()
_IMPORTED: list[Future[None]] = []


async def import_engine() -> None:
    """Return once the engine's clients of Kafka are imported."""
    with _LOCK:
        if not _IMPORTED:
            _IMPORTED.append(Future())
            threading.Thread(target=_import, args=_IMPORTED, name="wasmline-import", daemon=True).start()
    await asyncio.shield(asyncio.wrap_future(_IMPORTED[0]))


def _import(imported: Future[None]) -> None:
    try:
        import wasmline.control
        import wasmline.training  # noqa: F401
    except BaseException as error:
        imported.set_exception(error)
    else:
        imported.set_result(None)
