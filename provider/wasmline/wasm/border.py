"""The functions at a module's border, read from its bytes.

The runtime's bindings abort the process when they are asked for the type of a function that takes or returns a
vector. No host function does; so a module is asked here first. Format: the WebAssembly core specification, "Modules"
of its binary format. The bytes are those of a module that was validated, without proposals that add to the types.
"""

from __future__ import annotations

from collections.abc import Iterator

_TYPES, _IMPORTS, _FUNCTIONS, _EXPORTS = 1, 2, 3, 7
_FUNCTION, _TABLE, _MEMORY = 0, 1, 2
_V128 = 0x7B
_PREAMBLE_BYTES = 8


def functions_with_vectors(wasm: bytes) -> list[str]:
    """Return the names of the imported and exported functions that take or return a v128."""
    sections = {kind: _Reader(content) for kind, content in _sections(wasm) if kind}
    vectors: list[bool] = []
    for _ in _each(sections.get(_TYPES)):
        vectors.append(_signature_holds_vector(sections[_TYPES]))
    found, functions = [], []
    for _ in _each(sections.get(_IMPORTS)):
        name, kind = _import(sections[_IMPORTS])
        if kind is not None:
            functions.append(kind)
            found += [name] if vectors[kind] else []
    functions += [sections[_FUNCTIONS].number() for _ in _each(sections.get(_FUNCTIONS))]
    for _ in _each(sections.get(_EXPORTS)):
        export = sections[_EXPORTS]
        name, kind, index = export.name(), export.byte(), export.number()
        if kind == _FUNCTION and vectors[functions[index]]:
            found.append(name)
    return found


class _Reader:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take(self) -> bytes:
        size = self.number()
        self.at += size
        return self.data[self.at - size : self.at]

    def name(self) -> str:
        return self.take().decode()


def _sections(wasm: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Reader(wasm, _PREAMBLE_BYTES)
    while reader.at < len(wasm):
        yield reader.byte(), reader.take()


def _each(section: _Reader | None) -> range:
    return range(section.number() if section is not None else 0)


def _signature_holds_vector(reader: _Reader) -> bool:
    reader.byte()  # this is a function's type: there are no others
    params, results = reader.take(), reader.take()  # every value type takes one byte
    return _V128 in params or _V128 in results


def _import(reader: _Reader) -> tuple[str, int | None]:
    """Return an import's name, and its type if it is a function."""
    name, kind = f"{reader.name()}.{reader.name()}", reader.byte()
    if kind == _FUNCTION:
        return name, reader.number()
    if kind == _TABLE:
        reader.byte()  # what it holds
        _limits(reader)
    elif kind == _MEMORY:
        _limits(reader)
    else:
        reader.byte(), reader.byte()  # a global's type, and whether it may change
    return name, None


def _limits(reader: _Reader) -> None:
    flags, _ = reader.byte(), reader.number()
    if flags & 1:
        reader.number()
