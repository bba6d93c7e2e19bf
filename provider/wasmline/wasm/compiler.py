"""Compiling what may take for ever: in a process apart, which has limits.

The work on a function grows with the product of its locals and its code, so that a module of some kilobytes can take
minutes and gigabytes, and the runtime cannot be interrupted while it compiles.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from wasmline.errors import InvalidModule
from wasmline.wasm.abi import compile_module
from wasmline.wasm.binary import Reader, sections
from wasmline.wasm.engine import new_engine

DEMANDING = 1_000_000
"""Locals times bytes of code. The functions that Go, Rust and C++ make have less than half of it."""

CPU_SECONDS = 120
MEMORY_BYTES = 8 << 30
"""Of addresses, of which the runtime takes many."""

_CODE = 10


def is_demanding(wasm: bytes) -> bool:
    """Return true if a valid module has a function whose compilation may take longer than anybody waits."""
    bodies = Reader(sections(wasm).get(_CODE, b"\0"))
    return any(_demand(bodies.vector()) > DEMANDING for _ in range(bodies.number()))


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
            f"the module does not compile within {CPU_SECONDS} s of CPU time and {MEMORY_BYTES >> 30} GiB: it has a "
            "function of too many locals for its code"
        )
    if ended.returncode > 0:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise InvalidModule(f"the module does not compile: {said[-1] if said else 'the compiler said nothing'}")
    return ended.stdout


def _demand(body: bytes) -> int:
    reader = Reader(body)
    groups = [(reader.number(), reader.byte()) for _ in range(reader.number())]
    return sum(count for count, _ in groups) * len(body)


def main() -> None:
    """Compile the module on stdin and write its code to stdout: what the process apart does."""
    seconds = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    code = compile_module(new_engine(), sys.stdin.buffer.read()).serialize()
    sys.stdout.buffer.write(code)
