"""Serves the customers that ``enrich_over_http`` looks up, until SIGTERM or Ctrl-C: the service of the containers."""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from rich.console import Console

from enriching.service import SlowService
from wasmline.local.ports import HOST


def main() -> int:
    """Serve at the port of the command line."""
    parser = argparse.ArgumentParser(prog="serve_customers", description=__doc__.partition("\n")[0])
    parser.add_argument("--host", default=HOST)
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--delay-ms", type=float, default=50, help="the duration of a call (default: 50)")
    arguments = parser.parse_args()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with SlowService(arguments.delay_ms / 1_000, host=arguments.host, port=arguments.port) as service:
        Console().print(f"customers: http://{arguments.host}:{service.port}/customers/NAME", highlight=False)
        stopping.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
