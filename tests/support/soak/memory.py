"""The memory of a driver of leases and of all that runs below it, and whether it grows."""

from __future__ import annotations

import statistics
import subprocess
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from wasmline.local import find_java

SETTINGS = "--conf spark.driver.memory=512m --conf 'spark.driver.extraJavaOptions=-Xms512m -XX:+AlwaysPreTouch'"
"""Of spark-submit: a heap that is resident from the start, so that what the JVM takes beside it is seen to grow."""

PYTHONS = {"planner": "pyspark.sql.streaming.python_streaming_source_runner", "largest task": "pyspark.worker"}
"""Python processes of Spark's by the module that they run."""

SHARE, MEGABYTES = 1.05, 4.0
"""What the last quarter of a run may have over the second one."""


class Memory:
    """Samples by kind of process, in MB; each is also a line of ``file``, for who watches."""

    def __init__(self, driver: int, file: Path) -> None:
        self._driver = psutil.Process(driver)
        self._jcmd = find_java().path.resolve().parent / "jcmd"
        self._file = file
        self._curves: dict[str, list[float]] = defaultdict(list)
        file.write_text("")

    def sample(self) -> None:
        """Take what is not shared with others: of tasks the largest, since some may be idle; of the JVM all, too."""
        taken = {"driver": _own(self._driver)}
        for process in self._driver.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                command = " ".join(process.cmdline())
                if "org.apache.spark" in command:
                    taken["JVM"] = process.memory_info().rss / 1e6
                    taken["JVM, live heap"] = self._live_heap(process.pid)
                for kind, module in PYTHONS.items():
                    if command.endswith(module):
                        taken[kind] = max(taken.get(kind, 0.0), _own(process))
        for kind, megabytes in taken.items():
            self._curves[kind].append(megabytes)
        with self._file.open("a") as file:
            file.write("\t".join(f"{kind} {megabytes:.1f}" for kind, megabytes in sorted(taken.items())) + "\n")

    def grown(self) -> list[str]:
        """Return a sentence for each kind whose median over the last quarter is above that over the second one."""
        found = []
        for kind, curve in self._curves.items():
            quarter = len(curve) // 4
            early, late = (statistics.median(curve[at : at + quarter]) for at in (quarter, len(curve) - quarter))
            if late > early * SHARE + MEGABYTES:
                found.append(f"{kind} grew from {early:.1f} to {late:.1f} MB: see {self._file}")
        return found

    def _live_heap(self, pid: int) -> float:
        """Return what is left of a JVM's heap after a full collection."""
        answer = subprocess.run(
            [self._jcmd, str(pid), "GC.class_histogram"], capture_output=True, text=True, check=True
        )
        return int(answer.stdout.split()[-1]) / 1e6


def _own(process: psutil.Process) -> float:
    return float(process.memory_full_info().uss) / 1e6
