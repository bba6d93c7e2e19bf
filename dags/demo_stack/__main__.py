"""``make demo``: runs the demo, and prints its summary once all has been stopped.

Exit status: 0 done, 1 a failure, with its log, 130 ended by Ctrl-C. Everything that was started is stopped.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import httpx
from rich.console import Console

from demo_stack.terminal_progress import progress_on
from wasmline.errors import WasmlineError

JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JDK_JAVA_OPTIONS of JVMs that live for less than a minute: half of their CPU time would go into compiling."""


def _demo(arguments: argparse.Namespace, console: Console) -> None:
    with progress_on(console) as progress:
        progress.say("loading the demo")
        progress.wait_for("loading the demo")
        from delivery.text_report import print_summary  # these take seconds on a busy machine
        from demo_stack.run_demo import run

        report = run(arguments.rows, arguments.seed, arguments.data, console, progress)
    print_summary(report, console)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Parse the command line and run the demo."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="a CSV file of real deliveries, to be used instead of made-up ones")
    parser.add_argument("--rows", type=int, default=45_600, help="how many deliveries to make up (default: 45,600)")
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    signal.signal(signal.SIGTERM, _interrupt)
    os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS)
    console = Console()
    try:
        _demo(arguments, console)
    except KeyboardInterrupt:
        console.print("ended; everything that was started is stopped")
        return 130
    except (WasmlineError, httpx.HTTPError, TimeoutError) as error:
        console.print(f"demo: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
