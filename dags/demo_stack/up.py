"""``make up``: runs the demo's Kafka and Airflow, with the data of past runs, until ``make down``."""

from __future__ import annotations

import sys

from rich.console import Console

from demo_stack.stack import Stack, repository
from demo_stack.terminal_progress import progress_on
from wasmline.errors import WasmlineError


def up(stack: Stack, console: Console) -> None:
    """Start the services that do not run, and print their addresses."""
    if stack.kafka.running() and stack.airflow.running():
        console.print("both are up already")
    else:
        stack.stop()  # one alone is unusable: each has the other's address
        with progress_on(console) as progress:
            stack.start(progress, detached=True)
    console.print(f"Airflow  {stack.airflow.url}  (no login; open to this machine only)", highlight=False)
    console.print(f"Kafka    {stack.kafka.bootstrap_servers}", highlight=False)
    console.print("try the forms of delivery_pipeline and retrain_delivery_eta; `make down` ends both")
    console.print("enrich_over_http calls a service of yours: add a connection `customers`, of type HTTP, to it first")


def main() -> int:
    """Start both and return the exit status."""
    console = Console()
    try:
        up(Stack(repository(), watch_dags=True), console)
    except WasmlineError as error:
        console.print(f"up: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
