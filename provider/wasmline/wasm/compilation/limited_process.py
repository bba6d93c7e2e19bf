"""Runs a function on the bytes of a module in a subprocess with limits of CPU time, memory and wall-clock time.

The subprocess imports this package and its dependencies from the same folders as this process, and nothing from the
current folder or the environment.
"""

from __future__ import annotations

import importlib
import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

from wasmline.errors import InvalidModule, WasmlineError

MAX_ADDRESS_SPACE_BYTES = 8 << 30

MAX_ANSWER_BYTES = 256 * 2**20
"""Maximum size of compiled code. The largest modules of Go have a tenth of it."""

WALL_TIMEOUT_S = 600
"""Wall-clock seconds for a subprocess that does not get its CPU time."""

_INVALID_MODULE_STATUS = 65
_LIMIT_SIGNALS = (signal.SIGXCPU, signal.SIGKILL, signal.SIGABRT)
"""Signals for the CPU limit, for the CPU limit when ignored, and for a failed allocation of the runtime."""
_START = f"import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from {__name__} import main; main()"


def call_limited(function: str, wasm: bytes, *options: str, cpu_s: int) -> bytes:
    """Call ``package.module:function`` with the bytes of a module in a subprocess; return its result.

    Raises the function's InvalidModule, and InvalidModule if it takes more than ``cpu_s`` seconds of CPU time or
    MAX_ADDRESS_SPACE_BYTES; WasmlineError if the subprocess fails for another reason.
    """
    command = [sys.executable, "-I", "-c", _START, json.dumps(_import_paths()), function, str(cpu_s), *options]
    try:
        ended = subprocess.run(command, input=wasm, capture_output=True, check=False, timeout=WALL_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise WasmlineError(f"{function} did not get {cpu_s} s of CPU time within {WALL_TIMEOUT_S} s: retry") from error
    if ended.returncode == 0:
        return ended.stdout
    if ended.returncode == _INVALID_MODULE_STATUS:
        raise InvalidModule(ended.stdout.decode(errors="replace"))
    if -ended.returncode in _LIMIT_SIGNALS:
        raise InvalidModule(
            f"the module takes more than {cpu_s} s of CPU time or {MAX_ADDRESS_SPACE_BYTES >> 30} GiB to validate or "
            "compile"
        )
    lines = ended.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
    raise WasmlineError(f"the subprocess for {function} ended with status {ended.returncode}: {lines[-1]}")


def _import_paths() -> list[str]:
    """Return this process's import path without the current folder, unless this package is in it."""
    own = str(Path(__file__).parents[3])
    return [path for path in sys.path if Path(path).is_absolute() and not _is_current(path)] + [own]


def _is_current(folder: str) -> bool:
    try:
        return Path(folder).samefile(Path())
    except OSError:
        return False


def main() -> None:
    """Call a function on stdin within limits and write its result to stdout."""
    function, cpu_s, *options = sys.argv[1:]
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(cpu_s) + int(used.ru_utime + used.ru_stime))
    _limit(resource.RLIMIT_AS, MAX_ADDRESS_SPACE_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    try:
        answer = call(sys.stdin.buffer.read(), *options)
        if len(answer) > MAX_ANSWER_BYTES:
            raise InvalidModule(f"the module compiles to {len(answer):,} bytes; the maximum is {MAX_ANSWER_BYTES:,}")
    except MemoryError:
        sys.stdout.write(f"the module takes more than {MAX_ADDRESS_SPACE_BYTES >> 30} GiB to validate or compile")
        sys.exit(_INVALID_MODULE_STATUS)
    except InvalidModule as error:
        sys.stdout.write(str(error))
        sys.exit(_INVALID_MODULE_STATUS)
    sys.stdout.buffer.write(answer)


def _limit(kind: int, value: int) -> None:
    """Lower a limit of this process; a lower one is not raised."""
    _, hard = resource.getrlimit(kind)
    lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (lowest, lowest))
