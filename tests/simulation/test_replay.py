"""A seed stands for the same histories, step by step, whatever process runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SIMULATE = Path(__file__).with_name("simulate.py")


def test_a_seed_does_again_what_it_did_whatever_order_its_sets_have() -> None:
    traces = {
        subprocess.run(
            [sys.executable, SIMULATE, "--trace", "7"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": order},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for order in ("1", "2")
    }
    assert len(traces) == 1
