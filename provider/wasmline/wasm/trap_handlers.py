"""Keeps the signal handlers by which wasmtime learns of a guest's trap.

An access beyond a guest's memory is a SIGSEGV for the process, and the engine's handler makes a trap of it. Handlers
are the process's, and the engine sets its own only once: one that is set later gets all traps. Airflow sets a function
of Python as it imports a DAG; with it, the access is repeated for ever, and no limit ends that. ``faulthandler`` sets
what was there before it, as it ends; with the default, the process ends. So the engine's handlers are set again before
a guest runs. Those of other libraries stay: they may pass on what is not theirs.
"""

from __future__ import annotations

import ctypes
import signal
import sys

SIGNALS = (signal.SIGSEGV, signal.SIGILL, signal.SIGFPE)
"""Those that wasmtime handles on Linux."""

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
    """The handlers of this process at the moment of creation: right after that of an engine."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._actions = {number: self._current(number) for number in SIGNALS}
        self._interpreter = self._base(ctypes.cast(ctypes.pythonapi.PyErr_CheckSignals, ctypes.c_void_p).value)

    def restore(self) -> None:
        """Set those again that were replaced by the default, by none, or by the interpreter's own."""
        for number, action in self._actions.items():
            handler = self._current(number)[0]
            if handler != action[0] and self._base(handler) in (None, self._interpreter):
                self._library.sigaction(number, action, None)

    def _current(self, number: int) -> ctypes.Array[ctypes.c_void_p]:
        action = _Action()
        self._library.sigaction(number, None, action)
        return action

    def _base(self, address: int | None) -> int | None:
        """Return where the library begins that has an address; None if none has."""
        symbol = _Symbol()
        found = address and self._library.dladdr(ctypes.c_void_p(address), ctypes.byref(symbol))
        base: int | None = symbol.base if found else None
        return base


_handlers: TrapHandlers | None = None


def keep_trap_handlers() -> None:
    """Remember the engine's handlers, after the first engine of the process was created."""
    global _handlers
    if _handlers is None and sys.platform == "linux":  # elsewhere the engine has no such handlers
        _handlers = TrapHandlers()


def restore_trap_handlers() -> None:
    """Set the engine's handlers again if they were replaced: before each call of a guest."""
    if _handlers is not None:
        _handlers.restore()
