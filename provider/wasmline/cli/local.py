"""``wasmline local``: a real Kafka cluster that runs until it is stopped."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from wasmline.errors import LocalError

EXIT_NOT_RUNNING = 3

folder_option = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".wasmline/kafka"),
    show_default=True,
    help="The folder of the cluster's data, ports and logs.",
)


class TopicOption(click.ParamType[tuple[str, int]]):
    """A topic's name and, after a colon, its number of partitions; one by default."""

    name = "topic"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        name, _, count = value.partition(":")
        if not name or not (count or "1").isdecimal() or int(count or 1) < 1:
            self.fail(f"{value!r} is not NAME or NAME:PARTITIONS", param, ctx)
        return name, int(count or 1)


@click.group()
def local() -> None:
    """Start and stop a real Kafka on this machine.

    It needs a Java runtime; the broker itself is downloaded once.
    """


@local.command()
@folder_option
@click.option("--nodes", type=click.IntRange(min=1), help="Nodes of a new cluster.  [default: 1]")
@click.option("--port", "ports", type=int, multiple=True, help="A client port, once for each node; else free ones.")
@click.option(
    "--topic",
    "topics",
    type=TopicOption(),
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="A topic to create unless it exists; repeatable.",
)
def up(folder: Path, nodes: int | None, ports: tuple[int, ...], topics: tuple[tuple[str, int], ...]) -> None:
    """Start Kafka and leave it running. It restarts with its data and, if they are free, its ports."""
    from wasmline.kafka import KafkaConfig, Topics
    from wasmline.local import LocalKafka

    kafka = LocalKafka(folder, nodes=nodes, ports=ports)
    running = kafka.running()
    if running and len(running) < len(kafka.cluster.nodes):
        raise LocalError(f"only nodes {running} of the Kafka in {folder} run: stop it first with `wasmline local down`")
    if not running:
        kafka.start(detached=True)
    for name, partitions in topics:
        Topics(KafkaConfig({"bootstrap.servers": kafka.bootstrap_servers})).create(name, partitions, exist_ok=True)
    click.echo(f"Kafka is {'already ' if running else ''}up", err=True)
    click.echo(kafka.bootstrap_servers)


@local.command()
@folder_option
def down(folder: Path) -> None:
    """Stop Kafka; its data stays."""
    from wasmline.local import LocalKafka

    kafka = LocalKafka(folder)
    running = kafka.running()
    kafka.stop()
    click.echo("Kafka is down" if running else f"no Kafka runs in {folder}", err=True)


@local.command()
@folder_option
def status(folder: Path) -> None:
    """Show the nodes of the cluster. Ends with status 3 unless all of them are up."""
    from wasmline.local import LocalKafka
    from wasmline.local.jars import kafka_version

    kafka = LocalKafka(folder)
    running = kafka.running()
    if kafka.cluster.nodes[0].port:
        click.echo(f"Apache Kafka {kafka_version()} ({kafka.cluster.protocol}) in {folder}")
        click.echo(f"{'NODE':<6}{'STATE':<7}{'PORT':<7}PID")
    else:
        click.echo(f"no Kafka in {folder}")
    for node in kafka.cluster.nodes if kafka.cluster.nodes[0].port else ():
        up = node.id in running
        click.echo(f"{node.id:<6}{'up' if up else 'down':<7}{node.port:<7}{node.pid if up else '-'}")
    sys.exit(0 if len(running) == len(kafka.cluster.nodes) else EXIT_NOT_RUNNING)
