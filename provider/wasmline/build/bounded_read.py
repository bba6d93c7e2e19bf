"""Reads a project's files for this package: only regular ones, of limited size."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_project_file(path: Path, most: int) -> bytes:
    """Return the content of a file. Raises OSError if it is not a regular file, or has more than ``most`` bytes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would wait for a writer
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("it is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"it has more than {most} bytes")
    return content
