"""``make demo``: the delivery pipeline through a real Airflow, Kafka and Spark, from nothing to its report.

Exit status: 0 done, 1 something failed and was explained, 130 ended by Ctrl-C. Whatever was started is stopped.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
from rich.console import Console

import places
from delivery.report import JSON_FILE, DemoReport
from delivery.summary import print_summary
from wasmline.documents import decode
from wasmline.errors import LocalError, WasmlineError
from wasmline_provider.local.progress import RunProgress
from wasmline_provider.local.rest import AirflowApi
from wasmline_provider.local.stack import Stack

DAG = "delivery_pipeline"
STEPS = ("topics", "build", "produce", "test", "publish", "deploy", "stream", "verify", "train", "promote", "report")
PATIENCE = 1800.0
LOG_LINES = 30


def demo(stack: Stack, conf: dict[str, Any], console: Console) -> int:
    """Run the pipeline once and return the exit status."""
    if stack.running():
        raise LocalError("the demo's Kafka or Airflow runs already: `make down` stops them")
    with console.status("starting") as status:
        tell = status.update if console.is_terminal else console.print
        stack.start(tell=lambda line: tell(line))
    try:
        return _run(stack, conf, console)
    finally:
        with console.status("stopping Airflow and Kafka; their data stays"):
            stack.stop()


def _run(stack: Stack, conf: dict[str, Any], console: Console) -> int:
    api = stack.airflow.api
    console.print(f"Kafka at {stack.kafka.bootstrap_servers}, Airflow at {api.url}", highlight=False)
    if errors := api.import_errors():
        for file, trace in errors.items():
            console.print(f"{file} cannot be loaded:\n{trace}", markup=False, highlight=False)
        return 1
    api.abandon(DAG)
    run = api.trigger(DAG, conf)
    with RunProgress(console, STEPS) as progress:
        state = api.wait(DAG, run, timeout=PATIENCE, look=progress.show)
    if state != "success":
        explain(api, run, console)
        return 1
    print_summary(decode(DemoReport, Path(conf["report"], JSON_FILE).read_bytes()), console)
    return 0


def explain(api: AirflowApi, run: str, console: Console) -> None:
    """Print the end of the log of each task that failed."""
    for task in api.tasks(DAG, run):
        if task.state == "failed":
            console.rule(f"{task.task} failed; the end of its log")
            for line in api.log(DAG, run, task)[-LOG_LINES:]:
                console.print(line, markup=False, highlight=False, soft_wrap=True)


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
    console = Console()
    try:
        conf = {"rows": arguments.rows, "seed": arguments.seed, "data": _data(arguments.data)}
        stack = Stack(places.REPOSITORY)
        return demo(stack, {**conf, "report": str(stack.folder)}, console)
    except KeyboardInterrupt:
        console.print("ended; everything that was started is stopped")
        return 130
    except (WasmlineError, httpx.HTTPError, TimeoutError) as error:
        console.print(f"demo: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1


def _data(path: Path | None) -> str | None:
    if path is None:
        return None
    if not path.is_file():
        raise LocalError(f"there is no file {path}")
    return str(path.absolute())


if __name__ == "__main__":
    sys.exit(main())
