"""Makes Python's garbage collector run rarely, in a process that works on records."""

from __future__ import annotations

import gc

THRESHOLDS = (100_000, 20, 10)
"""Of ``gc.set_threshold``: new objects until a collection, and how many of these until the next older generation's."""


def collect_rarely() -> None:
    """Exclude all current objects from garbage collection, and collect new ones at every THRESHOLDS[0] of them.

    Records, outputs and batches are in no reference cycles: they are freed without the collector, which would look at
    each of them several times. For the whole process, so a library's user decides.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
