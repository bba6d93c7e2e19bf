"""Reads and adds the last section of a module, a custom one: data about the module, which no engine runs."""

from __future__ import annotations

from wasmline.wasm.binary.reader import CUSTOM, Reader, each_section, vector


def add_last_section(wasm: bytes, name: bytes, content: bytes) -> bytes:
    """Return the module with a custom section behind its other sections."""
    return wasm + bytes([CUSTOM]) + vector(vector(name) + content)


def split_last_section(wasm: bytes, name: bytes) -> tuple[bytes, bytes] | None:
    """Return all bytes before the custom section ``name``, and its content; None for a module without it.

    Raises InvalidModule for bytes that are not a module, and ValueError unless the section is there once, as the last
    one and in the bytes of ``add_last_section``.
    """
    found = list(each_section(wasm))
    named = [place for place, (kind, content) in enumerate(found) if kind == CUSTOM and _name(content) == name]
    if not named:
        return None
    size = len(bytes([CUSTOM]) + vector(found[-1][1]))
    before, content = wasm[:-size], found[-1][1][len(vector(name)) :]
    if named != [len(found) - 1] or add_last_section(before, name, content) != wasm:
        raise ValueError(f"its section {name.decode()} is not its last one, or is there twice, or is malformed")
    return before, content


def _name(content: bytes) -> bytes:
    return Reader(content).vector()
