"""Runs a foreign call on a module in a process of its own, which has limits and can be ended.

The process imports this package and what it needs from where this process has them, and nothing from the current folder
or the environment.
"""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
from pathlib import Path

from wasmline.errors import InvalidModule, WasmlineError

MEMORY_BYTES = 8 << 30
"""Of addresses, of which the runtime takes many."""

WALL_S = 600
"""For a process that does not get its CPU time."""

_REFUSED = 65
_START = f"import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from {__name__} import main; main()"


def call_limited(module: str, argument: bytes, *options: str, cpu_s: int) -> bytes:
    """Return what ``main(argument, *options)`` of an importable module returns, called in a process of its own.

    Raises the InvalidModule that it raises, and InvalidModule where the limits end it.
    """
    command = [sys.executable, "-I", "-c", _START, json.dumps(_import_paths()), module, str(cpu_s), *options]
    try:
        ended = subprocess.run(command, input=argument, capture_output=True, check=False, timeout=WALL_S)
    except subprocess.TimeoutExpired as error:
        raise InvalidModule(f"the module is not done with within {WALL_S} s") from error
    if ended.returncode < 0:
        raise InvalidModule(
            f"the module takes more than {cpu_s} s of CPU time or {MEMORY_BYTES >> 30} GiB to validate or compile: its "
            "functions have too many locals, operands, parameters or results for their code"
        )
    if ended.returncode == _REFUSED:
        raise InvalidModule(ended.stdout.decode(errors="replace"))
    if ended.returncode > 0:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise WasmlineError(
            f"the process that was to look at a module failed: {said[-1] if said else 'it said nothing'}"
        )
    return ended.stdout


def _import_paths() -> list[str]:
    """Return this process's import path without the current folder, but for the folder that this package is in."""
    own = str(Path(__file__).parents[2])
    return [path for path in sys.path if Path(path).is_absolute() and not _is_current(path)] + [own]


def _is_current(folder: str) -> bool:
    try:
        return Path(folder).samefile(Path())
    except OSError:
        return False


def main() -> None:
    """Call a module's ``main`` on stdin within limits and write what it returns to stdout."""
    name, cpu_s, *options = sys.argv[1:]
    call = importlib.import_module(name).main
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(cpu_s) + int(used.ru_utime + used.ru_stime))
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    try:
        answer = call(sys.stdin.buffer.read(), *options)
    except InvalidModule as error:
        sys.stdout.write(str(error))
        sys.exit(_REFUSED)
    sys.stdout.buffer.write(answer)


def _limit(kind: int, value: int) -> None:
    """Lower a limit of this process; one that is lower already stays."""
    _, hard = resource.getrlimit(kind)
    lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (lowest, lowest))
