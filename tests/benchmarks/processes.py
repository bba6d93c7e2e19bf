"""CPU time of what a benchmark runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]


def cpu_seconds() -> dict[str, float]:
    """Return the CPU time so far of the broker, Spark's JVM and its Python workers, all children of this process."""
    seconds = dict.fromkeys(("broker", "spark", "python"), 0.0)
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times, command = process.cpu_times(), process.cmdline()
            who = "broker" if "kafka.Kafka" in command else "spark" if "java" in Path(command[0]).name else "python"
            seconds[who] += times.user + times.system
    return seconds
