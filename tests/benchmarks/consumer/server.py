"""The HTTP server that the contestants call: C, in a process of its own, so that it takes little of the machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).parent / "server.c"


@contextmanager
def serving(folder: Path, delay_us: int) -> Iterator[str]:
    """Yield the URL of a server that answers every GET after ``delay_us``; it is compiled into ``folder``."""
    program = folder / "server"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([sys.executable, "-m", "ziglang", "cc", *flags, str(SOURCE), "-o", str(program)], check=True)
    with subprocess.Popen([program, str(delay_us)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}/"
        server.communicate()
