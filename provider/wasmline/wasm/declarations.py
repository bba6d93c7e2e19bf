"""What a module declares: types, imports, exports, tables, memories and globals, read from its bytes.

The runtime's bindings report imports and exports too, but only of compiled modules, and asked for a function of vectors
they abort the process. Only for modules that the runtime found valid, without proposals that add to the types: then a
value type takes one byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from wasmline.wasm.binary import EXPORT, FUNCTION, GLOBAL, IMPORT, MEMORY, START, TABLE, TYPE, Reader, sections

T = TypeVar("T")

_VALUES = {0x7F: "i32", 0x7E: "i64", 0x7D: "f32", 0x7C: "f64", 0x7B: "v128", 0x70: "funcref", 0x6F: "externref"}
_REF_FUNC, _VECTOR, _END = 0xD2, 0xFD, 0x0B
_OPERANDS = {0x43: 4, 0x44: 8}
_LEB_OPERAND = (0x23, 0x41, 0x42, 0xD0, _REF_FUNC)
_CONSTANT = (0x23, 0x41, 0x42, 0x43, 0x44, 0xD0)
"""get a global, the four kinds of numbers, a null reference."""


@dataclass(frozen=True, slots=True)
class FunctionType:
    """Parameters and results, by their names."""

    parameters: tuple[str, ...]
    results: tuple[str, ...]

    def holds(self, value: str) -> bool:
        """Return true if the function takes or returns such a value."""
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
    """``constant`` is false for one whose initial value is computed by more than one instruction, or a function."""

    holds: str
    mutable: bool
    constant: bool = True

    def __str__(self) -> str:
        return f"mut {self.holds}" if self.mutable else self.holds


Kind = FunctionType | TableType | MemoryType | GlobalType


@dataclass(frozen=True, slots=True)
class Import:
    """Something that a host must provide."""

    module: str
    name: str
    type: Kind

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class Export:
    """Something that the module offers."""

    name: str
    type: Kind

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """Everything, in the module's order. Tables, memories and globals include imported ones; ``functions`` do not."""

    types: tuple[FunctionType, ...]
    imports: tuple[Import, ...]
    functions: int
    tables: tuple[TableType, ...]
    memories: tuple[MemoryType, ...]
    globals: tuple[GlobalType, ...]
    exports: tuple[Export, ...]
    start_section: bool


def declarations(wasm: bytes) -> Declarations:
    """Return what a valid module declares."""
    content = sections(wasm)

    def each(section: int, item: Callable[[Reader], T]) -> Iterator[T]:
        reader = Reader(content.get(section, b"\0"))
        return (item(reader) for _ in range(reader.number()))

    types = tuple(each(TYPE, _function_type))
    imports = tuple(each(IMPORT, lambda reader: Import(reader.name(), reader.name(), _imported(reader, types))))
    functions = [types[index] for index in each(FUNCTION, Reader.number)]
    tables = _joined(TableType, imports, each(TABLE, _table))
    memories = _joined(MemoryType, imports, each(MEMORY, _memory))
    global_types = _joined(GlobalType, imports, each(GLOBAL, _defined_global))
    spaces = (_joined(FunctionType, imports, iter(functions)), tables, memories, global_types)
    return Declarations(
        types=types,
        imports=imports,
        functions=len(functions),
        tables=tables,
        memories=memories,
        globals=global_types,
        exports=tuple(each(EXPORT, lambda reader: Export(reader.name(), spaces[reader.byte()][reader.number()]))),
        start_section=START in content,
    )


def _joined(kind: type[T], imports: tuple[Import, ...], own: Iterator[T]) -> tuple[T, ...]:
    """Return an index space: what is imported comes before the module's own."""
    return (*(item.type for item in imports if isinstance(item.type, kind)), *own)


def _function_type(reader: Reader) -> FunctionType:
    reader.byte()  # there are no types but those of functions
    return FunctionType(_values(reader), _values(reader))


def _values(reader: Reader) -> tuple[str, ...]:
    return tuple(_VALUES[value] for value in reader.vector())


def _imported(reader: Reader, types: tuple[FunctionType, ...]) -> Kind:
    kind = reader.byte()
    if kind == 0:
        return types[reader.number()]
    return (_table, _memory, _global)[kind - 1](reader)


def _table(reader: Reader) -> TableType:
    holds = _VALUES[reader.byte()]
    _, least, most = _limits(reader)
    return TableType(holds, least, most)


def _memory(reader: Reader) -> MemoryType:
    flags, least, most = _limits(reader)
    return MemoryType(least, most, bool(flags & 2), bool(flags & 4))


def _limits(reader: Reader) -> tuple[int, int, int | None]:
    flags, least = reader.byte(), reader.number()
    return flags, least, reader.number() if flags & 1 else None


def _global(reader: Reader) -> GlobalType:
    return GlobalType(_VALUES[reader.byte()], bool(reader.byte()))


def _defined_global(reader: Reader) -> GlobalType:
    kind = _global(reader)
    return GlobalType(kind.holds, kind.mutable, _is_constant(reader))


def _is_constant(reader: Reader) -> bool:
    """Read a constant expression to its end."""
    instructions = []
    while (instruction := reader.byte()) != _END:
        instructions.append(instruction)
        if instruction in _LEB_OPERAND:
            reader.number()
        elif instruction == _VECTOR:  # v128.const
            reader.number()
            reader.take(16)
        else:
            reader.take(_OPERANDS.get(instruction, 0))
    return len(instructions) == 1 and instructions[0] in _CONSTANT


def _range(least: int, most: int | None) -> str:
    return f"{least:,}" if most is None else f"{least:,} to {most:,}"
