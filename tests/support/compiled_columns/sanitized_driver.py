"""Compiles and runs driver.c, which tests compiled_columns.c with random records, under a compiler's sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("driver.c")

COMPILERS = ("cc", "gcc", "clang")

FLAGS = ("-std=c11", "-g", "-O1", "-pthread")

MEMORY = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""AddressSanitizer with its search for leaks, and UndefinedBehaviorSanitizer."""

RACES = ("-fsanitize=thread",)
"""ThreadSanitizer."""

OPTIONS = {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}
"""Variables of a sanitized program's environment."""

TRIAL = """
#include <pthread.h>
#include <stdlib.h>

static void *run(void *memory) { free(memory); return NULL; }

int main(void) {
  pthread_t thread;
  return pthread_create(&thread, NULL, run, malloc(1)) || pthread_join(thread, NULL);
}
"""
"""A program that ends with 0 where the sanitizers work."""

STARTUP_S = 60.0
SEED_S = 0.2
"""Seconds that a run has at most, and in addition per seed: a hundred times what is needed."""

SHOWN = 6_000
"""Characters of a failed run's report that a test shows, from each end."""


@dataclass(frozen=True, slots=True)
class SanitizedDriver:
    """driver.c, compiled with some sanitizers."""

    program: Path

    @classmethod
    def compiled(cls, folder: Path, sanitizers: tuple[str, ...]) -> SanitizedDriver:
        """Compile it into a folder, with the first compiler that has the sanitizers; skip the test if none has."""
        trial = folder / "trial.c"
        trial.write_text(TRIAL)
        reasons = []
        for name in COMPILERS:
            if (compiler := shutil.which(name)) is None:
                reasons.append(f"{name}: not found")
                continue
            command = [compiler, *FLAGS, *sanitizers, "-o"]
            tried = _run([*command, str(folder / "trial"), str(trial)]) or _run([str(folder / "trial")])
            if not tried:
                program = folder / "driver"
                if problem := _run([*command, str(program), str(SOURCE)]):
                    pytest.fail(f"{name} does not compile {SOURCE.name}:\n{problem}")
                return cls(program)
            reasons.append(f"{name}: {tried.splitlines()[-1]}")
        pytest.skip(f"needs a C compiler with {' '.join(sanitizers)} ({'; '.join(reasons)})")

    def run(self, mode: str, first: int, count: int) -> None:
        """Run the iterations of ``count`` seeds from ``first`` on; fail the test with the seed of one that fails."""
        command = [str(self.program), mode, str(first), str(count)]
        environment = {**os.environ, **OPTIONS}
        timeout = STARTUP_S + count * SEED_S
        try:
            ended = subprocess.run(
                command, env=environment, capture_output=True, text=True, errors="replace", timeout=timeout
            )
        except subprocess.TimeoutExpired as error:
            output = error.stdout or b""
            seeds = output.decode(errors="replace") if isinstance(output, bytes) else output
            pytest.fail(f"{_replay(mode, seeds)} hangs")
        if ended.returncode:
            report = ended.stderr
            if len(report) > 2 * SHOWN:
                report = f"{report[:SHOWN]}\n...\n{report[-SHOWN:]}"
            pytest.fail(f"{_replay(mode, ended.stdout)} ends with status {ended.returncode}:\n{report}")


def _replay(mode: str, seeds: str) -> str:
    """Return the command that runs the last of the seeds again."""
    seed = (seeds.split() or ["0"])[-1]
    return f"FUZZ_SEED={seed} FUZZ_EXAMPLES=1 pytest tests/fuzz/test_compiled_columns.py -k {mode}"


def _run(command: list[str]) -> str:
    """Return why a command fails, "" if it does not."""
    ended = subprocess.run(
        command, env={**os.environ, **OPTIONS}, capture_output=True, text=True, errors="replace", timeout=300
    )
    return (ended.stderr.strip() or f"status {ended.returncode}") if ended.returncode else ""
