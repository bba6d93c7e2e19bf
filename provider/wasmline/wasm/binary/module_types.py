"""Reads the declarations of a module: types, imports, exports, tables, memories and globals.

The runtime's bindings report imports and exports too, but only of compiled modules, and they abort the process for a
function of vectors. Supports the encodings of the core specification 2.0, and its 64-bit and shared memories.
Encodings of later proposals are InvalidModule, even those that the runtime accepts: the long form of a reference type,
a final subtype and compact imports. Compilers do not emit them, and Redpanda's parser does not know them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from wasmline.errors import InvalidModule
from wasmline.wasm.binary.reader import EXPORT, FUNCTION, GLOBAL, IMPORT, MEMORY, START, TABLE, TYPE, Reader, sections

T = TypeVar("T")

MAX_TYPE_BYTES = 2**20
"""Maximum size of the type section: many times that of the largest modules."""
MAX_CONSTANT_INSTRUCTIONS = 1_000

_VALUES = {0x7F: "i32", 0x7E: "i64", 0x7D: "f32", 0x7C: "f64", 0x7B: "v128", 0x70: "funcref", 0x6F: "externref"}
_REFERENCES = ("funcref", "externref")
_FUNCTION = 0x60
_HAS_MOST, _SHARED, _WIDE = 1, 2, 4
_VECTOR, _V128_CONST, _END = 0xFD, 0x0C, 0x0B
_OPERAND_BYTES = {0x43: 4, 0x44: 8} | dict.fromkeys((0x6A, 0x6B, 0x6C, 0x7C, 0x7D, 0x7E), 0)
"""Numbers of fixed size; addition, subtraction and multiplication of integers, which have no operand."""
_I64_CONST = 0x42
_LEB_OPERAND = (0x23, 0x41, _I64_CONST, 0xD0, 0xD2)
_CONSTANT = (0x23, 0x41, 0x42, 0x43, 0x44, 0xD0)
"""get a global, the four kinds of numbers, a null reference."""


@dataclass(frozen=True, slots=True)
class FunctionType:
    """Parameters and results, by the names of their types."""

    parameters: tuple[str, ...]
    results: tuple[str, ...]

    def holds(self, value: str) -> bool:
        """Return True if the function takes or returns a value of this type."""
        return value in self.parameters or value in self.results

    def __str__(self) -> str:
        results = ", ".join(self.results) if len(self.results) == 1 else f"({', '.join(self.results)})"
        return f"({', '.join(self.parameters)}) -> {results}"


@dataclass(frozen=True, slots=True)
class TableType:
    """``least`` and, where declared, ``most`` elements."""

    holds: str
    least: int
    most: int | None

    def __str__(self) -> str:
        return f"{_range(self.least, self.most)} {self.holds}"


@dataclass(frozen=True, slots=True)
class MemoryType:
    """``least`` and, where declared, ``most`` pages of 64 KiB."""

    least: int
    most: int | None
    shared: bool
    wide: bool

    def __str__(self) -> str:
        kinds = (("shared ", self.shared), ("64-bit ", self.wide))
        return f"{''.join(text for text, holds in kinds if holds)}{_range(self.least, self.most)} pages"


@dataclass(frozen=True, slots=True)
class GlobalType:
    """``constant`` is false if the initial value is computed by more than one instruction, or by a function."""

    holds: str
    mutable: bool
    constant: bool = True

    def __str__(self) -> str:
        return f"mut {self.holds}" if self.mutable else self.holds


Kind = FunctionType | TableType | MemoryType | GlobalType


@dataclass(frozen=True, slots=True)
class Import:
    """An item that a host must provide."""

    module: str
    name: str
    type: Kind

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class Export:
    """An item that the module offers."""

    name: str
    type: Kind

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """All declarations, in the module's order. Tables, memories and globals include imported ones; functions do not."""

    types: tuple[FunctionType, ...]
    imports: tuple[Import, ...]
    functions: int
    tables: tuple[TableType, ...]
    memories: tuple[MemoryType, ...]
    globals: tuple[GlobalType, ...]
    exports: tuple[Export, ...]
    start_section: bool


def declarations(wasm: bytes) -> Declarations:
    """Return the declarations of a valid module. Raises InvalidModule for an unsupported encoding."""
    content = sections(wasm)
    if (size := len(content.get(TYPE, b""))) > MAX_TYPE_BYTES:
        raise InvalidModule(f"the module's types take {size:,} bytes; at most {MAX_TYPE_BYTES:,} are allowed")

    def each(section: int, item: Callable[[Reader], T]) -> Iterator[T]:
        reader = Reader(content.get(section, b"\0"))
        return (item(reader) for _ in range(reader.number()))

    types = tuple(each(TYPE, function_type))
    imports = tuple(each(IMPORT, lambda reader: Import(reader.name(), reader.name(), _imported(reader, types))))
    functions = [_item(types, index) for index in each(FUNCTION, Reader.number)]
    tables = _joined(TableType, imports, each(TABLE, _table))
    memories = _joined(MemoryType, imports, each(MEMORY, _memory))
    global_types = _joined(GlobalType, imports, each(GLOBAL, _defined_global))
    spaces: tuple[tuple[Kind, ...], ...] = (
        _joined(FunctionType, imports, iter(functions)),
        tables,
        memories,
        global_types,
    )
    return Declarations(
        types=types,
        imports=imports,
        functions=len(functions),
        tables=tables,
        memories=memories,
        globals=global_types,
        exports=tuple(each(EXPORT, lambda reader: Export(reader.name(), _exported(reader, spaces)))),
        start_section=START in content,
    )


def value_type(byte: int) -> str:
    """Return the name of a value type, which takes one byte."""
    try:
        return _VALUES[byte]
    except KeyError:
        raise _unknown("value type", byte) from None


def function_type(reader: Reader) -> FunctionType:
    """Read an entry of the type section."""
    form = reader.byte()
    if form != _FUNCTION:
        raise _unknown("form of a type", form)
    return FunctionType(_values(reader), _values(reader))


def _unknown(what: str, byte: int) -> InvalidModule:
    return InvalidModule(f"unsupported {what} 0x{byte:02x}: transform hosts read the core specification 2.0")


def _item(items: tuple[T, ...], index: int) -> T:
    if index >= len(items):
        raise InvalidModule(f"the module names item {index} of {len(items)}")
    return items[index]


def _joined(kind: type[T], imports: tuple[Import, ...], own: Iterator[T]) -> tuple[T, ...]:
    """Return an index space: imported items come before the module's own."""
    return (*(item.type for item in imports if isinstance(item.type, kind)), *own)


def _values(reader: Reader) -> tuple[str, ...]:
    return tuple(map(value_type, reader.vector()))


def _imported(reader: Reader, types: tuple[FunctionType, ...]) -> Kind:
    match reader.byte():
        case 0:
            return _item(types, reader.number())
        case 1:
            return _table(reader)
        case 2:
            return _memory(reader)
        case 3:
            return _global(reader)
        case kind:
            raise _unknown("kind of an import", kind)


def _exported(reader: Reader, spaces: tuple[tuple[Kind, ...], ...]) -> Kind:
    kind = reader.byte()
    if kind >= len(spaces):
        raise _unknown("kind of an export", kind)
    return _item(spaces[kind], reader.number())


def _table(reader: Reader) -> TableType:
    holds = value_type(reader.byte())
    if holds not in _REFERENCES:
        raise InvalidModule(f"a table holds {holds}, which is not a reference")
    _, least, most = _limits(reader, _HAS_MOST | _WIDE)
    return TableType(holds, least, most)


def _memory(reader: Reader) -> MemoryType:
    flags, least, most = _limits(reader, _HAS_MOST | _SHARED | _WIDE)
    return MemoryType(least, most, bool(flags & _SHARED), bool(flags & _WIDE))


def _limits(reader: Reader, known: int) -> tuple[int, int, int | None]:
    flags = reader.byte()
    if flags & ~known:
        raise _unknown("form of limits", flags)
    longest = 10 if flags & _WIDE else 5
    return flags, reader.number(longest), reader.number(longest) if flags & _HAS_MOST else None


def _global(reader: Reader) -> GlobalType:
    holds, mutable = value_type(reader.byte()), reader.byte()
    if mutable > 1:
        raise _unknown("form of a global", mutable)
    return GlobalType(holds, bool(mutable))


def _defined_global(reader: Reader) -> GlobalType:
    kind = _global(reader)
    return GlobalType(kind.holds, kind.mutable, _is_constant(reader))


def _is_constant(reader: Reader) -> bool:
    """Read a constant expression to its end."""
    instructions: list[int] = []
    while (instruction := reader.byte()) != _END:
        instructions.append(instruction)
        if len(instructions) > MAX_CONSTANT_INSTRUCTIONS:
            raise InvalidModule(f"a constant has more than {MAX_CONSTANT_INSTRUCTIONS:,} instructions")
        if instruction in _LEB_OPERAND:
            reader.number(10 if instruction == _I64_CONST else 5)
        elif instruction in _OPERAND_BYTES:
            reader.take(_OPERAND_BYTES[instruction])
        elif instruction == _VECTOR and reader.number() == _V128_CONST:
            reader.take(16)
        else:
            raise _unknown("instruction of a constant", instruction)
    return len(instructions) == 1 and instructions[0] in _CONSTANT


def _range(least: int, most: int | None) -> str:
    return f"{least:,}" if most is None else f"{least:,} to {most:,}"
