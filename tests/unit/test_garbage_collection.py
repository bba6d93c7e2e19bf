"""How often the garbage collector runs, which is a setting of a process."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc
from wasmline.garbage_collection import THRESHOLDS, collect_rarely
collect_rarely()
assert gc.get_threshold() == THRESHOLDS
assert gc.get_freeze_count() > 1_000
before = gc.get_stats()[0]["collections"]
kept = [[] for _ in range(90_000)]
assert gc.get_stats()[0]["collections"] == before
more = [[] for _ in range(20_000)]
assert gc.get_stats()[0]["collections"] == before + 1
"""


def test_new_objects_are_collected_at_every_so_many() -> None:
    subprocess.run([sys.executable, "-P", "-c", SCRIPT], check=True, timeout=60)
