"""Writes valid transforms at random, in every encoding that the engine's features allow.

Numbers are padded to any length, types have their short or their long form, constants look like calls, and code uses
what compilers seldom do: blocks of many results, typed selects, tail calls, passive segments, functions in tables.
What a module does depends on its records alone, and ends: functions call earlier ones, and loops count down.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass

from wasmline.wasm.abi import FUNCTIONS

I32, I64, F32, F64, V128, FUNCREF, EXTERNREF = 0x7F, 0x7E, 0x7D, 0x7C, 0x7B, 0x70, 0x6F
NUMBERS = (I32, I64, F32, F64, V128)
REFERENCES = (FUNCREF, EXTERNREF)
VALUES = (*NUMBERS, *REFERENCES)

PAYLOAD, SCRATCH, ANSWER = 65536, 8192, 4096
PAGES = 4
SCRATCH_MASK = 0xFFF

Signature = tuple[tuple[int, ...], tuple[int, ...]]
HEADER_CELLS = (0, 8, 12, 16, 20, 24, 32, 40, 48, 52)
RECORD_CELLS = (64, 72, 80)
_LETTERS = {"i": I32, "I": I64}


def signature(kind: str) -> Signature:
    parameters, _, results = kind.partition(":")
    return tuple(_LETTERS[letter] for letter in parameters), tuple(_LETTERS[letter] for letter in results)


@dataclass(frozen=True, slots=True)
class Function:
    """A function that code may call: its number and its type."""

    number: int
    type: Signature


class ModuleWriter:
    """Writes one module with the random numbers it is given."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.padding = rng.choice((0.0, 0.1, 0.5))
        self.types: list[Signature] = []
        self.imports: list[tuple[str, str]] = []
        self.functions: list[Function] = []
        self.bodies: list[bytes] = []
        self.globals: list[tuple[int, bool, bytes]] = []
        self.tables = [FUNCREF, *rng.choices(REFERENCES, k=rng.randrange(3))]
        self.segments = [rng.randbytes(rng.randrange(20)) for _ in range(rng.randrange(1, 4))]
        self.elements = rng.randrange(1, 4)

    # -- numbers and types ---------------------------------------------------------------------------------------------

    def number(self, value: int, longest: int = 5) -> bytes:
        """Return an unsigned number, with zeros behind it at times."""
        written = bytearray()
        while value >= 0x80:
            written.append(value & 0x7F | 0x80)
            value >>= 7
        written.append(value)
        return self._padded(bytes(written), longest, 0)

    def signed(self, value: int, longest: int = 5) -> bytes:
        """Return a signed number, with its sign repeated at times."""
        written = bytearray()
        while not -64 <= value < 64:
            written.append(value & 0x7F | 0x80)
            value >>= 7
        written.append(value & 0x7F)
        return self._padded(bytes(written), longest, 0x7F if value < 0 else 0)

    def _padded(self, written: bytes, longest: int, filling: int) -> bytes:
        if self.rng.random() >= self.padding or len(written) == longest:
            return written
        more = self.rng.randrange(1, longest - len(written) + 1)
        return written[:-1] + bytes([written[-1] | 0x80]) + bytes([filling | 0x80]) * (more - 1) + bytes([filling])

    def vector(self, data: bytes) -> bytes:
        return self.number(len(data)) + data

    def list(self, items: list[bytes]) -> bytes:
        return self.number(len(items)) + b"".join(items)

    def value_type(self, kind: int) -> bytes:
        """Return a type as code spells it: a reference at times by its long form."""
        long = kind in REFERENCES and self.rng.random() < 0.5
        return bytes([0x63, kind] if long else [kind])

    def type(self, kind: Signature) -> int:
        if kind not in self.types or (len(self.types) < 200 and self.rng.random() < 0.02):
            self.types.append(kind)
        return self.rng.choice([index for index, known in enumerate(self.types) if known == kind])

    def odd_bytes(self, size: int) -> bytes:
        """Return bytes that look like calls of the first functions, or like anything."""
        looks = [b"\x10" + bytes([self.rng.randrange(12)]), b"\x12\x03", b"\x0b\x0b", self.rng.randbytes(2)]
        return b"".join(self.rng.choices(looks, k=size))[:size]

    # -- the module ----------------------------------------------------------------------------------------------------

    def write(self) -> bytes:
        """Return the module."""
        self._import()
        for kind in VALUES:
            self.globals.append((kind, True, self._constant(kind)))
        for _ in range(self.rng.choice((1, 3, 8))):
            self._function()
        if self.rng.random() < 0.3:  # more functions than a byte can number
            for _ in range(130):
                self._define(((), ()), b"\x00\x0b")
        start = self._define(((), ()), b"\x00" + b"\x01" * self.rng.randrange(3) + b"\x0b")
        main = self._define(((), ()), self._main())
        code = (10, self.list([self.vector(body) for body in self.bodies]))
        sections = [
            (3, self.list([self.number(self.type(item.type)) for item in self.functions[len(self.imports) :]])),
            (4, self.list([bytes([kind, 0]) + self.number(8) for kind in self.tables])),
            (5, b"\x01" + self.rng.choice([b"\x00" + self.number(PAGES), b"\x01" + self.number(PAGES) + b"\x10"])),
            (6, self.list([bytes([kind, mutable]) + begin for kind, mutable, begin in self.globals])),
            (7, self._exports(main.number)),
            *([(8, self.number(start.number))] if self.rng.random() < 0.5 else []),
            (9, self._elements()),
            (12, self.number(len(self.segments))),
            code,
            (11, self._data()),
        ]
        imports = (2, self._imports())
        types = (1, self._types())  # last, as all others may need one more
        written = [self._section(kind, content) for kind, content in (types, imports, *sections)]
        return b"\0asm\x01\0\0\0" + b"".join(part for one in written for part in (self._custom(), one)) + self._custom()

    def _section(self, kind: int, content: bytes) -> bytes:
        return bytes([kind]) + self.vector(content)

    def _custom(self) -> bytes:
        if self.rng.random() < 0.8:
            return b""
        name = self.rng.choice([b"name", b"", b"producers", "ü".encode()])
        return self._section(0, self.vector(name) + self.odd_bytes(self.rng.randrange(30)))

    def _types(self) -> bytes:
        return self.list(
            [
                b"\x60" + self.vector(bytes(parameters)) + self.vector(bytes(results))
                for parameters, results in self.types
            ]
        )

    def _import(self) -> None:
        names = [
            (module, name)
            for module, functions in FUNCTIONS.items()
            for name in functions
            if name not in ("proc_exit", "check_abi_version_1")
        ]
        names += [("redpanda_transform", name) for name in ("write_record", "read_next_record")]  # twice
        self.rng.shuffle(names)
        for module, name in names:
            self.functions.append(Function(len(self.functions), signature(FUNCTIONS[module][name])))
            self.imports.append((module, name))

    def _imports(self) -> bytes:
        return self.list(
            [
                self.vector(module.encode()) + self.vector(name.encode()) + b"\x00" + self.number(self.type(item.type))
                for (module, name), item in zip(self.imports, self.functions, strict=False)
            ]
        )

    def _exports(self, main: int) -> bytes:
        names = [(b"_start", 0, main), (b"memory", 2, 0)]
        odd = [(b"shim.memory", 3, 0), (b"guest._start", 0, main), (b"", 1, 0), (b"shim.host", 1, 0), (b"x", 0, 0)]
        names += self.rng.sample(odd, self.rng.randrange(len(odd)))
        self.rng.shuffle(names)
        return self.list([self.vector(name) + bytes([kind]) + self.number(index) for name, kind, index in names])

    def _elements(self) -> bytes:
        """Table 0 begins with functions; the segments behind are passive, or only declare, in each of their forms."""
        numbers = [self.rng.choice(self.functions).number for _ in range(8)]
        indices = self.list([self.number(index) for index in numbers])
        zero = b"\x41" + self.signed(0) + b"\x0b"
        first = self.rng.choice([b"\x00" + zero + indices, b"\x02\x00" + zero + b"\x00" + indices])
        expressions = self.list([b"\xd2" + self.number(index) + b"\x0b" for index in numbers])
        forms = [b"\x01\x00" + indices, b"\x03\x00" + indices, b"\x05\x70" + expressions, b"\x07\x70" + expressions]
        declared = b"\x03\x00" + self.list([self.number(item.number) for item in self.functions])
        return self.list([first, *self.rng.choices(forms, k=self.elements - 1), declared])

    def _data(self) -> bytes:
        def segment(data: bytes) -> bytes:
            place = b"\x41" + self.signed(SCRATCH) + b"\x41" + self.signed(16) + b"\x6a\x0b"
            head = self.rng.choice([b"\x01", b"\x00" + place, b"\x02\x00" + place])
            return head + self.vector(data)

        return self.list([segment(data) for data in self.segments])

    # -- code ----------------------------------------------------------------------------------------------------------

    def _define(self, kind: Signature, body: bytes) -> Function:
        self.type(kind)
        function = Function(len(self.functions), kind)
        self.functions.append(function)
        self.bodies.append(body)
        return function

    def _function(self) -> None:
        """Define a function of random type, which may call those before it."""
        parameters = tuple(self.rng.choices(VALUES, k=self.rng.randrange(4)))
        results = tuple(self.rng.choices(VALUES, k=self.rng.choice((0, 1, 1, 2, 3))))
        code = Code(self, parameters, [self.rng.choice(VALUES) for _ in range(self.rng.randrange(6))])
        statements = b"".join(code.statement(3) for _ in range(self.rng.randrange(1, 6)))
        self._define((parameters, results), code.locals() + statements + code.ending(results) + b"\x0b")

    def _main(self) -> bytes:
        """Return the loop of a transform: copies a record, writes what the functions make of it, and goes on."""
        code = Code(self, (), [I32])
        size = b"\x20" + self.number(0)
        header = b"".join(map(self.i32, HEADER_CELLS)) + self.call("read_batch_header") + b"\x1a"
        read = b"".join(map(self.i32, (*RECORD_CELLS, PAYLOAD, PAYLOAD))) + self.call("read_next_record")
        answer = self.i32(ANSWER) + self.i32(0x2001) + b"\x3b\x00\x00"  # no key, a value of sixteen bytes
        for cell in (2, 10):
            value = b"".join(code.expression(I64, 3) for _ in range(1))
            answer += self.i32(ANSWER + cell) + value + b"\x37\x00\x00"
        answer += self.i32(ANSWER + 18) + self.i32(0) + b"\x3a\x00\x00"
        answer += self.i32(ANSWER) + self.i32(19) + self.call("write_record") + b"\x1a"
        copy = self.i32(PAYLOAD) + size + self.call("write_record") + b"\x1a"
        named = self.i32(PAYLOAD) + size + self.i32(0) * 2 + self.call("write_record_with_options") + b"\x1a"
        each = b"".join([copy, answer, *(code.statement(3) for _ in range(3)), named])
        record = b"\x03\x40" + read + b"\x22\x00" + self.i32(0) + b"\x4e\x04\x40" + each + b"\x0c\x01\x0b\x0b"
        return code.locals() + b"\x03\x40" + header + record + b"\x0c\x00\x0b\x0b"

    def i32(self, value: int) -> bytes:
        return b"\x41" + self.signed(value)

    def call(self, name: str) -> bytes:
        numbers = [index for index, (_, imported) in enumerate(self.imports) if imported == name]
        return b"\x10" + self.number(self.rng.choice(numbers))

    def _constant(self, kind: int) -> bytes:
        """Return how a global begins."""
        if kind == I32 and self.rng.random() < 0.5:
            return self.i32(7) + self.i32(9) + self.rng.choice([b"\x6a", b"\x6b", b"\x6c"]) + b"\x0b"
        return self.constant(kind) + b"\x0b"

    def constant(self, kind: int) -> bytes:
        odd = [0x10, 0x1010, 0x0310, 0x10031003, -1, 0, 2**31 - 1, self.rng.randrange(-(2**31), 2**31)]
        match kind:
            case 0x7F:
                return self.i32(self.rng.choice(odd))
            case 0x7E:
                return b"\x42" + self.signed(self.rng.choice(odd) << self.rng.randrange(32), 10)
            case 0x7D:
                return (
                    b"\x43" + struct.pack("<f", self.rng.choice(odd[:-1]))
                    if self.rng.random() < 0.5
                    else (b"\x43\x10\x03\x10\x03")
                )
            case 0x7C:
                return b"\x44" + self.rng.choice([b"\x10\x03" * 4, struct.pack("<d", self.rng.random())])
            case 0x7B:
                return b"\xfd\x0c" + self.odd_bytes(16)
        return b"\xd0" + bytes([kind])


class Code:
    """Writes the code of one function: expressions of a wanted type, and statements that leave nothing."""

    def __init__(self, writer: ModuleWriter, parameters: tuple[int, ...], own: list[int]) -> None:
        self._writer = writer
        self._rng = writer.rng
        self._own = [*own, I32]
        self._variables = [*parameters, *self._own]
        self._counter = len(self._variables) - 1
        self._calls = 2
        self._looping = False
        self._callable = len(writer.functions)

    def locals(self) -> bytes:
        """Return the groups of the function's own variables, and some whose numbers look like instructions."""
        groups = []
        for kind in self._own:
            if self._rng.random() < 0.1:
                groups.append(self._number(0) + self._type(self._rng.choice(VALUES)))
            groups.append(self._number(1) + self._type(kind))
        unused = self._rng.choices((0x0E, 0x10, 0x11, 0x1C, 0x41, 0x43, 0x44, 0x100), k=self._rng.choice((0, 0, 1, 3)))
        groups += [self._number(count) + self._type(self._rng.choice(VALUES)) for count in unused]
        return self._writer.list(groups)

    def ending(self, results: tuple[int, ...]) -> bytes:
        """Return expressions of the results, or a tail call of a function that has the same."""
        fit = [item for item in self._functions() if item.type[1] == results]
        values = b"".join(self.expression(kind, 2) for kind in results)
        if fit and self._rng.random() < 0.5:
            callee = self._rng.choice(fit)
            return self._arguments(callee, 1) + b"\x12" + self._number(callee.number)
        return values + (b"\x0f" if self._rng.random() < 0.3 else b"")

    def statement(self, depth: int) -> bytes:
        """Return code that takes nothing and leaves nothing."""
        forms: list[Callable[[int], bytes]] = [
            self._drop,
            self._set,
            self._store,
            self._bulk,
            self._table,
            self._branches,
            self._many_results,
            self._loop,
            self._unreached,
        ]
        return self._rng.choice(forms)(depth - 1)

    def expression(self, kind: int, depth: int) -> bytes:
        """Return code that leaves one value."""
        if depth <= 0:
            return self._leaf(kind)
        forms: list[Callable[[int, int], bytes]] = [
            self._operation,
            self._block,
            self._choice,
            self._typed_choice,
            self._call,
            self._if,
        ]
        return self._rng.choice(forms)(kind, depth - 1)

    def _number(self, value: int) -> bytes:
        return self._writer.number(value)

    def _type(self, kind: int) -> bytes:
        return self._writer.value_type(kind)

    def _functions(self) -> list[Function]:
        """Return the module's own functions before this one."""
        return self._writer.functions[len(self._writer.imports) : self._callable]

    def _leaf(self, kind: int) -> bytes:
        variables = [index for index, known in enumerate(self._variables) if known == kind]
        match self._rng.randrange(4):
            case 0 if variables:
                return b"\x20" + self._number(self._rng.choice(variables))
            case 1:
                return b"\x23" + self._number(VALUES.index(kind))
            case 2 if kind == FUNCREF:
                return b"\xd2" + self._number(self._rng.choice(self._writer.functions[: self._callable]).number)
        return self._writer.constant(kind)

    def _address(self, depth: int) -> bytes:
        masked = self.expression(I32, depth) + self._writer.i32(SCRATCH_MASK) + b"\x71"
        return masked + self._writer.i32(SCRATCH) + b"\x6a"

    def _place(self, largest: int) -> bytes:
        """Return alignment and offset of an access, at times with the number of the memory, which is 0."""
        alignment, offset = self._rng.randrange(largest + 1), self._rng.choice((0, 3, 0x10, 300))
        if self._rng.random() < 0.3:
            return self._number(alignment | 0x40) + self._number(0) + self._number(offset)
        return self._number(alignment) + self._number(offset)

    def _operation(self, kind: int, depth: int) -> bytes:
        operands = {
            I32: [
                lambda: self.expression(I32, depth) * 2 + bytes([self._rng.choice((0x6A, 0x6B, 0x6C, 0x71, 0x73))]),
                lambda: self._address(depth) + b"\x28" + self._place(2),
                lambda: self.expression(I64, depth) + b"\xa7",
                lambda: self.expression(F64, depth) + b"\xfc\x02",
                lambda: self.expression(V128, depth) + b"\xfd" + b"\x1b" + bytes([self._rng.randrange(4)]),
                lambda: self.expression(FUNCREF, depth) + b"\xd1",
                lambda: b"\x3f" + self._number(0),
                lambda: b"\xfc\x10" + self._number(0),
            ],
            I64: [
                lambda: self.expression(I64, depth) * 2 + bytes([self._rng.choice((0x7C, 0x7D, 0x7E, 0x85))]),
                lambda: self._address(depth) + b"\x29" + self._place(3),
                lambda: self.expression(I32, depth) + b"\xad",
                lambda: self.expression(V128, depth) + b"\xfd\x1d" + bytes([self._rng.randrange(2)]),
                lambda: self.expression(I64, depth) * 4 + b"\xfc\x13\x1a",
            ],
            F32: [lambda: self.expression(F32, depth) + b"\x8b", lambda: self.expression(I32, depth) + b"\xb2"],
            F64: [lambda: self.expression(F32, depth) + b"\xbb", lambda: self.expression(I64, depth) + b"\xb9"],
            V128: [
                lambda: self.expression(V128, depth) * 2 + b"\xfd\x0d" + bytes(self._rng.choices(range(32), k=16)),
                lambda: self.expression(V128, depth) * 2 + b"\xfd" + self._vector_operation(),
                lambda: self._address(depth) + b"\xfd\x00" + self._place(4),
                lambda: self._address(depth) + self.expression(V128, depth) + b"\xfd\x54" + self._place(0) + b"\x0f",
            ],
        }
        return self._rng.choice(operands[kind])() if kind in operands else self._leaf(kind)

    def _vector_operation(self) -> bytes:
        """Return an operation on integers, by a number of one byte, of two, or of more than it takes."""
        return self._number(self._rng.choice((0x4E, 0x50, 0x6E, 0xAE, 0xCE)))

    def _block_type(self, kind: int) -> bytes:
        if self._rng.random() < 0.5:
            return self._type(kind)
        return self._writer.signed(self._writer.type(((), (kind,))))

    def _block(self, kind: int, depth: int) -> bytes:
        return b"\x02" + self._block_type(kind) + self.statement(depth) + self.expression(kind, depth) + b"\x0b"

    def _if(self, kind: int, depth: int) -> bytes:
        yes, no = self.expression(kind, depth), self.expression(kind, depth)
        return self.expression(I32, depth) + b"\x04" + self._block_type(kind) + yes + b"\x05" + no + b"\x0b"

    def _choice(self, kind: int, depth: int) -> bytes:
        if kind in REFERENCES:
            return self._typed_choice(kind, depth)
        return self.expression(kind, depth) + self.expression(kind, depth) + self.expression(I32, depth) + b"\x1b"

    def _typed_choice(self, kind: int, depth: int) -> bytes:
        values = self.expression(kind, depth) + self.expression(kind, depth) + self.expression(I32, depth)
        return values + b"\x1c" + self._number(1) + self._type(kind)

    def _call(self, kind: int, depth: int) -> bytes:
        fit = [item for item in self._functions() if item.type[1] == (kind,)]
        if not fit or self._calls == 0:
            return self._leaf(kind)
        self._calls -= 1
        callee = self._rng.choice(fit)
        return self._arguments(callee, depth) + b"\x10" + self._number(callee.number)

    def _arguments(self, callee: Function, depth: int) -> bytes:
        return b"".join(self.expression(kind, depth) for kind in callee.type[0])

    def _drop(self, depth: int) -> bytes:
        return self.expression(self._rng.choice(VALUES), depth) + b"\x1a"

    def _set(self, depth: int) -> bytes:
        if self._rng.random() < 0.5:
            kind = self._rng.choice(VALUES)
            return self.expression(kind, depth) + b"\x24" + self._number(VALUES.index(kind))
        index = self._rng.randrange(self._counter) if self._counter else 0
        if not self._counter:
            return b"\x01"
        value = self.expression(self._variables[index], depth)
        return value + self._rng.choice([b"\x21" + self._number(index), b"\x22" + self._number(index) + b"\x1a"])

    def _store(self, depth: int) -> bytes:
        kind, code, largest = self._rng.choice([(I32, b"\x36", 2), (I64, b"\x37", 3), (V128, b"\xfd\x0b", 4)])
        return self._address(depth) + self.expression(kind, depth) + code + self._place(largest)

    def _bulk(self, depth: int) -> bytes:
        segment = self._number(self._rng.randrange(len(self._writer.segments)))
        zero = self._number(0)
        to, length = self._address(depth), self._writer.i32(self._rng.randrange(40))
        return self._rng.choice(
            [
                to + self._address(depth) + length + b"\xfc\x0a" + zero + zero,
                to + self.expression(I32, depth) + length + b"\xfc\x0b" + zero,
                to + self._writer.i32(0) * 2 + b"\xfc\x08" + segment + zero,
                b"\xfc\x09" + segment,
                self._writer.i32(0) + b"\x40" + zero + b"\x1a",
            ]
        )

    def _table(self, depth: int) -> bytes:
        index = self._rng.randrange(len(self._writer.tables))
        table, kind = self._number(index), self._writer.tables[index]
        place = self.expression(I32, depth) + self._writer.i32(7) + b"\x71"
        zeros = self._writer.i32(0) * 3
        return self._rng.choice(
            [
                place + self.expression(kind, depth) + b"\x26" + table,
                place + b"\x25" + table + b"\x1a",
                zeros + b"\xfc\x0e" + table + table,
                b"\xfc\x0d" + self._number(self._rng.randrange(self._writer.elements)),
                self.expression(kind, 0) + self._writer.i32(0) + b"\xfc\x0f" + table + b"\x1a",
                place + self.expression(kind, 0) + self._writer.i32(0) + b"\xfc\x11" + table,
                zeros + b"\xfc\x0c" + self._number(0) + self._number(0),
            ]
        )

    def _branches(self, depth: int) -> bytes:
        """Return nested blocks that a table of branches leaves."""
        count = self._rng.randrange(1, 4)
        targets = b"".join(self._number(self._rng.randrange(count)) for _ in range(self._rng.randrange(20)))
        table = self.expression(I32, depth) + b"\x0e" + self._targets(targets, count)
        return b"\x02\x40" * count + table + b"\x0b" * count

    def _targets(self, targets: bytes, count: int) -> bytes:
        listed = sum(byte < 0x80 for byte in targets)  # each number ends with such a byte
        return self._number(listed) + targets + self._number(self._rng.randrange(count))

    def _many_results(self, depth: int) -> bytes:
        """Return a block that takes values and leaves values, which are dropped or stored."""
        kinds = tuple(self._rng.choices(VALUES, k=self._rng.randrange(2, 5)))
        block = self._writer.type((kinds, kinds))
        values = b"".join(self.expression(kind, depth - 1) for kind in kinds)
        return values + b"\x02" + self._writer.signed(block) + b"\x01\x0b" + b"\x1a" * len(kinds)

    def _loop(self, depth: int) -> bytes:
        """Return a loop that runs three times, calls nothing and has no other in it."""
        if self._looping:
            return b"\x01"
        calls, self._calls, self._looping = self._calls, 0, True
        counter = self._number(self._counter)
        body = self.expression(self._rng.choice(NUMBERS), depth - 1) + b"\x1a"
        self._calls, self._looping = calls, False
        more = b"\x20" + counter + self._writer.i32(1) + b"\x6b\x22" + counter
        return self._writer.i32(3) + b"\x21" + counter + b"\x03\x40" + body + more + b"\x0d\x00\x0b"

    def _unreached(self, depth: int) -> bytes:
        """Return code that is never reached, in which the stack may hold anything."""
        dead = self._rng.choice([b"\x6a\x1a", b"\x1b\x1a", b"\x1c\x01\x7b\x1a", b"\x25\x00\xd1\x0d\x00", b""])
        return b"\x02\x40" + self._rng.choice([b"\x0c\x00", self._writer.i32(1) + b"\x0d\x00\x0c\x00"]) + dead + b"\x0b"
