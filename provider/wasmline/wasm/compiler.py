"""Compiling what may take for ever: in a process apart, which has limits.

The work on a function grows with the product of its locals and its code, or of its code and its operand stack, and with
blocks of many results faster still, so that a module of some kilobytes can take minutes and gigabytes; and the runtime
cannot be interrupted while it compiles.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from wasmline.errors import InvalidModule
from wasmline.wasm.abi import compile_module
from wasmline.wasm.binary import CODE, Reader, sections
from wasmline.wasm.declarations import declarations
from wasmline.wasm.engine import new_engine

DEMANDING_FUNCTION = 1_000_000
"""Locals times bytes of code. The functions that Go, Rust and C++ make have less than half of it."""

DEMANDING_MODULE = 100_000_000
"""The sum over all functions, each with its operand stack: some seconds. Only large modules of Go have as much."""

BYTES_PER_OPERAND = 64
"""So much code costs as much as one more local: that many operands may be alive at once, but each is cheap."""

CPU_SECONDS = 120
MEMORY_BYTES = 8 << 30
"""Of addresses, of which the runtime takes many."""


def is_demanding(wasm: bytes) -> bool:
    """Return true if the compilation of a valid module may take longer than anybody waits."""
    types = declarations(wasm).types
    if any(len(kind.results) > 1 for kind in types):  # each may be of a block too, and a loop carries what it takes
        return True
    parameters = max((len(kind.parameters) for kind in types), default=0)
    bodies = Reader(sections(wasm).get(CODE, b"\0"))
    total = 0
    for _ in range(bodies.number()):
        body = bodies.vector()
        locals_ = parameters + _locals(body)
        total += (locals_ + len(body) // BYTES_PER_OPERAND) * len(body)
        if locals_ * len(body) > DEMANDING_FUNCTION or total > DEMANDING_MODULE:
            return True
    return False


def compile_apart(wasm: bytes) -> bytes:
    """Return a module's code, ready for ``Module.deserialize``, or raise InvalidModule where the limits end it."""
    ended = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import main; main()", str(CPU_SECONDS)],
        input=wasm,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    if ended.returncode < 0:
        raise InvalidModule(
            f"the module does not compile within {CPU_SECONDS} s of CPU time and {MEMORY_BYTES >> 30} GiB: its "
            "functions have too many locals, operands or results for their code"
        )
    if ended.returncode > 0:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise InvalidModule(f"the module does not compile: {said[-1] if said else 'the compiler said nothing'}")
    return ended.stdout


def _locals(body: bytes) -> int:
    reader = Reader(body)
    groups = [(reader.number(), reader.byte()) for _ in range(reader.number())]
    return sum(count for count, _ in groups)


def main() -> None:
    """Compile the module on stdin and write its code to stdout: what the process apart does."""
    seconds = int(sys.argv[1])
    _limit(resource.RLIMIT_CPU, seconds)
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    code = compile_module(new_engine(), sys.stdin.buffer.read()).serialize()
    sys.stdout.buffer.write(code)


def _limit(kind: int, value: int) -> None:
    """Lower a limit of this process; one that is lower already stays."""
    _, hard = resource.getrlimit(kind)
    lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (lowest, lowest))
