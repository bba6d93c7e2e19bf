"""``wasmline launcher``: starts the drivers of jobs on this machine."""

from __future__ import annotations

import logging
import signal
import threading
from pathlib import Path

import click

from wasmline.cli.options import kafka_config, kafka_option


@click.command()
@click.option("--name", required=True, help="The launcher's name, which operators give as `launcher`.")
@click.option(
    "--log-folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("wasmline-drivers"),
    show_default=True,
    help="The folder of the drivers' output.",
)
@click.option("--jars", help="Comma-separated jars with Spark's Kafka connector.  [default: the pinned ones]")
@kafka_option
def launcher(name: str, log_folder: Path, jars: str | None, settings: tuple[tuple[str, str], ...]) -> None:
    """Start the drivers of jobs on this machine, and start those of continuous streams again when they die.

    Drivers run with this machine's $SPARK_HOME, Python and Kafka settings. Of several processes of one name one is
    active, and another takes over when it ends. Drivers outlive this process: SIGTERM and Ctrl-C end it alone, and the
    next one adopts them.
    """
    from wasmline.cli import TerminalFormatter
    from wasmline.control.launch_request import require_launcher_name
    from wasmline.local import connector_jars
    from wasmline.spark.launcher import DriverStarter, Launcher

    require_launcher_name(name)
    config = kafka_config(settings)
    starter = DriverStarter(config, jars or ",".join(map(str, connector_jars())))
    output = logging.StreamHandler()
    output.setFormatter(TerminalFormatter("%(asctime)s %(levelname)s %(message)s"))
    lines = logging.getLogger("wasmline.spark.launcher")
    lines.addHandler(output)
    lines.setLevel(logging.INFO)
    lines.propagate = False
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    service = Launcher(config, name, log_folder, starter)
    try:
        service.run(stopping)
    finally:
        service.close()
        lines.removeHandler(output)
