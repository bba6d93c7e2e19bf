"""Shortens the names of a module's functions: the runtime copies them completely for each frame of a trap."""

from __future__ import annotations

from collections.abc import Sequence

from wasmline.errors import InvalidModule
from wasmline.wasm.binary.reader import NAMES, Reader, number, vector

MAX_NAME_BYTES = 1_024
MAX_SECTIONS_BYTES = 8 * 2**20
"""Maximum size of all name sections together. Large modules of Go have a quarter of it."""

_MODULE, _FUNCTIONS = 0, 1


def truncate_names(sections: Sequence[bytes]) -> list[bytes]:
    """Return the contents of name sections with the names of the module and its functions, truncated if long.

    Names do not affect what a module does: malformed or too large ones are omitted.
    """
    if sum(map(len, sections)) > MAX_SECTIONS_BYTES:
        return []
    return [short for content in sections if (short := _short(content))]


def _short(content: bytes) -> bytes | None:
    reader, kept = Reader(content), b""
    try:
        reader.vector()
        while reader.more:
            kind, names = reader.byte(), Reader(reader.vector())
            if kind == _MODULE:
                kept += bytes([kind]) + vector(vector(_cut(names.vector())))
            elif kind == _FUNCTIONS:
                named = [number(names.number()) + vector(_cut(names.vector())) for _ in range(names.number())]
                kept += bytes([kind]) + vector(number(len(named)) + b"".join(named))
    except InvalidModule:
        return None
    return vector(NAMES) + kept


def _cut(name: bytes) -> bytes:
    return name if len(name) <= MAX_NAME_BYTES else name[:MAX_NAME_BYTES].decode(errors="ignore").encode()
