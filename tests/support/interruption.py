"""Exceptions that come from outside between any two steps of a function: Ctrl-C, a task's time limit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from types import FrameType, ModuleType
from typing import Any


class Interrupted(BaseException):
    """Raised where the interpreter calls a signal's function: as a function begins, after one in C, while one waits."""


def is_interrupted(call: Callable[[], object], modules: Collection[ModuleType], step: int) -> bool:
    """Run a call, and interrupt it at the step of that number in functions of some modules.

    Only in this thread. Returns False where it has fewer.
    """
    files, taken = {module.__file__ for module in modules}, 0

    def profile(frame: FrameType, event: str, function: Any) -> None:
        nonlocal taken
        waits = event == "c_call" and function.__name__ == "acquire"
        if frame.f_code.co_filename in files and (waits or event in ("call", "c_return")):
            taken += 1
            if taken > step:
                sys.setprofile(None)
                raise Interrupted

    sys.setprofile(profile)
    try:
        call()
    except Interrupted:
        return True
    finally:
        sys.setprofile(None)
    return False
