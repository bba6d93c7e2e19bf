"""Holds the signal handlers by which wasmtime learns of a guest's trap, while guests run.

An access beyond a guest's memory is a SIGSEGV for the process, and the engine's handler makes a trap of it. Handlers
are the process's, and the engine sets its own only once: one that is set later gets all traps. Airflow sets a function
of Python as it imports a DAG; with it, the access is repeated for ever. ``faulthandler`` sets what was there before it,
as it ends; with the default, the process ends. So the engine's handlers are set again while a guest runs, and those
that were there are put back afterwards. Those of other libraries stay: they may pass on what is not theirs.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import sys
import threading
from typing import Any

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGSEGV, signal.SIGILL, signal.SIGFPE)
"""Those of traps on Linux; of a division, on some processors only."""

NO_FUNCTION = (None, int(signal.SIG_IGN))
"""Handlers that are not functions: the default, which ctypes reads as None, and none."""

_Action = ctypes.c_void_p * 32
"""At least a ``struct sigaction``, whose first field is the handler."""


class _Symbol(ctypes.Structure):
    """A ``Dl_info``: where a function is from."""

    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


class TrapHandlers:
    """A context in which guests may run, in any number of threads at once. It does nothing but on Linux."""

    def __init__(self) -> None:
        self._engine: dict[int, ctypes.Array[ctypes.c_void_p]] | None = None
        self._replaced: dict[int, tuple[ctypes.Array[ctypes.c_void_p], bool]] = {}
        """What was there before the engine's handlers were set again, and whether faulthandler was on."""
        self._lock = threading.Lock()
        self._running = 0

    def keep(self, engine_function: Any) -> None:
        """Remember the engine's handlers, right after its first instance is created. They are in its own library."""
        if self._engine is not None or sys.platform != "linux":
            return
        current = {number: _current(number) for number in SIGNALS}
        library = _library_of(_address(engine_function))
        self._engine = {number: action for number, action in current.items() if _library_of(action[0]) == library}
        if signal.SIGSEGV not in self._engine:
            logger.warning("wasmtime's signal handlers were replaced before: a guest's trap may end this process")

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1
            self._set()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                self._put_back()

    def renew(self) -> None:
        """Set the engine's handlers again, if guests run and others were set meanwhile."""
        with self._lock:
            if self._running:
                self._set()

    def reset(self) -> None:
        """Forget guests in threads that a fork has not copied."""
        self._lock = threading.Lock()
        self._running = 0
        self._put_back()

    def _set(self) -> None:
        for number, action in (self._engine or {}).items():
            current = _current(number)
            if current[0] != action[0] and (current[0] in NO_FUNCTION or _library_of(current[0]) == INTERPRETER):
                self._replaced[number] = current, faulthandler.is_enabled()
                LIBC.sigaction(number, action, None)

    def _put_back(self) -> None:
        for number, (action, had_faulthandler) in self._replaced.items():
            has_ended = had_faulthandler and not faulthandler.is_enabled()  # and has set what was there before it
            if self._engine and _current(number)[0] == self._engine[number][0] and not has_ended:
                LIBC.sigaction(number, action, None)
        self._replaced.clear()  # only now: a fork in between forgets none


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def _current(number: int) -> ctypes.Array[ctypes.c_void_p]:
    action = _Action()
    LIBC.sigaction(number, None, action)
    return action


def _library_of(address: int | None) -> int | None:
    """Return where the library begins that has an address; None if none has."""
    symbol = _Symbol()
    found = address and LIBC.dladdr(ctypes.c_void_p(address), ctypes.byref(symbol))
    base: int | None = symbol.base if found else None
    return base


if sys.platform == "linux":
    LIBC = ctypes.CDLL(None)
    INTERPRETER = _library_of(_address(ctypes.pythonapi.PyErr_CheckSignals))

TRAP_HANDLERS = TrapHandlers()
"""Those of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=TRAP_HANDLERS.reset)
