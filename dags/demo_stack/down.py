"""``make down``: stops the Kafka and Airflow of ``make up``; the data stays. ``--status`` only shows their state."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from demo_stack.stack import Stack, repository
from demo_stack.terminal_progress import progress_on
from wasmline.errors import WasmlineError


def main() -> int:
    """Stop both, or show their state: 0 up, 3 down."""
    parser = argparse.ArgumentParser(prog="down", description=__doc__.partition("\n")[0])
    parser.add_argument("--status", action="store_true", help="stop nothing; exit with 0 if both run, else with 3")
    arguments = parser.parse_args()
    console = Console()
    try:
        stack = Stack(repository())
        if arguments.status:
            return _status(stack, console)
        was_up = stack.running()
        with progress_on(console) as progress:
            progress.wait_for("stopping Airflow and Kafka")
            stack.stop()
    except WasmlineError as error:
        console.print(f"down: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    console.print("Airflow and Kafka are down; their data stays" if was_up else "neither was up")
    return 0


def _status(stack: Stack, console: Console) -> int:
    kafka, airflow = bool(stack.kafka.running()), stack.airflow.running()
    console.print(f"Airflow  {stack.airflow.url if airflow else 'down'}", highlight=False)
    console.print(f"Kafka    {stack.kafka.bootstrap_servers if kafka else 'down'}", highlight=False)
    return 0 if kafka and airflow else 3


if __name__ == "__main__":
    sys.exit(main())
