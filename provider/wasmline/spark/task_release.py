"""Binds the tasks of a driver to its release: executors with another one refuse them in one line.

Pickle restores a dataclass by the order of its fields, which differs between releases: a task would run with values
that were meant for other fields. So the release comes first, and no field is restored before it was compared.
"""

from __future__ import annotations

import pickle
import socket
from dataclasses import fields
from typing import Any

import wasmline
from wasmline.errors import ReleaseMismatch

RELEASE = wasmline.__version__


class ReleaseBound:
    """Base of the dataclasses that a driver sends to executors. Raises ReleaseMismatch where one is unpickled."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        return restore, (RELEASE, pickle.dumps((type(self), values)))


def restore(release: str, data: bytes) -> Any:
    """Return the task that a driver of ``release`` has pickled. Raises ReleaseMismatch if it is not this one."""
    if release != RELEASE:
        text = f"the driver has Wasmline {release}, and the executor on {socket.gethostname()} has {RELEASE}: "
        raise ReleaseMismatch(
            f"{text}install one release on all, and start the job again", driver=release, executor=RELEASE
        )
    kind, values = pickle.loads(data)
    return kind(**values)
