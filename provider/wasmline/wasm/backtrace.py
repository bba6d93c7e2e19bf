"""Names of the functions in the backtrace of a trap, demangled for Rust."""

from __future__ import annotations

import re

import wasmtime

from wasmline.printable import printable

MAX_NAMES = 3
MAX_NAME_LETTERS = 100
MAX_DEMANGLED_BYTES = 16 * 1024
MAX_BACK_REFERENCES = 16
"""In a symbol of Rust's v0 mangling: each may repeat the text before it, which may have such references itself."""
SHORT_NAME_LETTERS = 40

_LINE = re.compile(r"^ +\d+: +0x[0-9a-f]+ - (.*)$", re.MULTILINE)
_LEGACY = re.compile(r"17h[0-9a-f]{16}E$")
_HASH = re.compile(r"\[[0-9a-f]{1,16}\]|::h[0-9a-f]{16}$")
_RUNTIME = ("abort", "__rustc::", "alloc::", "core::", "std::")
"""Prefixes of the names of a language's panic functions, which are not the cause."""


def function_names(trap: wasmtime.Trap) -> list[str]:
    """Return the names of the innermost named functions, without the language's panic functions."""
    names = [name for name in _readable(trap) if name]
    return [printable(name[:MAX_NAME_LETTERS]) for name in _blamed(names)[:MAX_NAMES]]


def _blamed(names: list[str]) -> list[str]:
    return [name for name in names if not name.startswith(_RUNTIME)] or names


def _readable(trap: wasmtime.Trap) -> list[str]:
    """Return a name for each frame, "" for none.

    The runtime demangles when it prints a backtrace, all names at once, names that are not Rust's by the rules of C++.
    By these a name of 300 bytes may expand beyond the memory, and "f" becomes "float": so it is used only if all names
    are too short for that or Rust's with few back references, and only Rust's are used. (Linkers demangle those of
    C++.)
    """
    frames = [(frame.module_name or "<unknown>", frame.func_name or "") for frame in trap.frames]
    names = [name for _, name in frames]
    rust = [is_rust(name) for name in names]
    safe = all(
        len(name) <= SHORT_NAME_LETTERS or (known and name.count("B") <= MAX_BACK_REFERENCES)
        for known, name in zip(rust, names, strict=True)
    )
    if not any(rust) or not safe or sum(map(len, names)) > MAX_DEMANGLED_BYTES:
        return names
    lines = _LINE.findall(trap.message)
    if len(lines) != len(frames):  # a name contains a line break
        return names
    return [
        _HASH.sub("", line.removeprefix(f"{module}!")) if known else name
        for line, (module, name), known in zip(lines, frames, rust, strict=True)
    ]


def is_rust(name: str) -> bool:
    """Return True for a symbol in Rust's v0 or legacy mangling, whose parts have their declared lengths."""
    if name.startswith("_R"):
        return True
    if not name.startswith("_ZN") or not _LEGACY.search(name):
        return False
    at = len("_ZN")
    while name[at] != "E":
        digits = re.match(r"[1-9]\d{0,4}", name[at:])
        if not digits:
            return False
        at += digits.end() + int(digits[0])
        if at >= len(name):
            return False
    return at == len(name) - 1
