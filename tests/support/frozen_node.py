"""A broker that stands still, and stays connected."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from wasmline.local import LocalKafka


@contextmanager
def frozen(local: LocalKafka) -> Iterator[None]:
    """Stop the one node, which leads a process group of its own, as a machine under memory pressure would."""
    (node,) = local.cluster.nodes
    assert node.pid is not None
    os.killpg(node.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(node.pid, signal.SIGCONT)
