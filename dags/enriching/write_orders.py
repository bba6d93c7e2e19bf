"""Creates the topics of ``enrich_over_http`` and writes made-up orders: the input of the containers."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

import demo_settings
from enriching.orders import orders
from wasmline.errors import WasmlineError
from wasmline.kafka import KafkaConfig, Topics, produce_all

PARTITIONS = 3


def write_orders(kafka: KafkaConfig, count: int) -> int:
    """Write ``count`` orders, numbered from the number of those that are there, and return the first number."""
    cluster = Topics(kafka)
    for name in (demo_settings.ORDERS, demo_settings.ENRICHED, demo_settings.UNENRICHED):
        cluster.create(name, PARTITIONS, exist_ok=True)
    first = sum(cluster.end_offsets(demo_settings.ORDERS).values())
    produce_all(kafka, demo_settings.ORDERS, orders(first, count))
    return first


def main() -> int:
    """Write the orders to the cluster of $WASMLINE_KAFKA_CONFIG."""
    parser = argparse.ArgumentParser(prog="write_orders", description=__doc__.partition("\n")[0])
    parser.add_argument("count", type=int, nargs="?", default=1_800, help="how many (default: 1,800)")
    console = Console()
    arguments = parser.parse_args()
    try:
        first = write_orders(KafkaConfig.from_environment(), arguments.count)
    except WasmlineError as error:
        console.print(f"write_orders: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1
    console.print(f"{arguments.count:,} orders from number {first:,} in {demo_settings.ORDERS}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
