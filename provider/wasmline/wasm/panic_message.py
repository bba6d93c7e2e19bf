"""Parses a guest's stderr for the cause of its end: its panic, and whether it ran out of memory."""

from __future__ import annotations

import re

from wasmline.printable import one_line

_PANIC = re.compile(
    r"^((?:thread [^\n]* panicked at |panic: |fatal error: ).*?)"
    r"(?=\n\n|\n\[\.\.\.\]\n|\n(?:note: |stack backtrace:|goroutine )|\Z)"
    r"(?:\nnote: run with [^\n]*)?",
    re.MULTILINE | re.DOTALL,
)
"""A panic as Rust, Go and TinyGo print it, without the stack that follows; and Rust's hint to enable the backtrace."""

_OUT_OF_MEMORY = re.compile(
    r"^(?:"
    r"memory allocation of \d+ bytes failed"  # Rust
    r"|.*\bbad_alloc\b.*"  # C++
    r"|fatal error: (?:runtime: )?(?:out of memory|cannot allocate memory).*"  # Go
    r"|(?:.*: )?out ?of ?memory\.?"  # TinyGo ("panic: runtime error: …"), Zig, JavaScript and others
    r")$",
    re.MULTILINE | re.IGNORECASE,
)
"""Lines that language runtimes print when an unhandled allocation failed."""


def panic_and_rest(stderr: str) -> tuple[str, str]:
    """Return the last panic in a guest's stderr, or its last line if there is none, and the rest of it.

    Both are one printable line.
    """
    panics = list(_PANIC.finditer(stderr))
    if panics:
        last = panics[-1]
        return one_line(last[1]), one_line(f"{stderr[: last.start()]} {stderr[last.end() :]}")
    rest, _, line = stderr.rstrip().rpartition("\n")
    return one_line(line), one_line(rest)


def tells_out_of_memory(stderr: str) -> bool:
    """Return True if a language's runtime reported a failed allocation."""
    return _OUT_OF_MEMORY.search(stderr) is not None
