"""Runs a consumer from the command line: shows its progress, and stops it on signals."""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import click
from rich.console import Console
from rich.markup import escape

from wasmline.consumer import ConsumerHealth, HandlerFactory, ParallelConsumer
from wasmline.consumer.handler_adapters import Handler
from wasmline.consumer.health import WaitingKey
from wasmline.printable import printable

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.25
"""Seconds between two polls of the consumer's health."""

TERMINAL_INTERVAL_S = 1.0
"""Seconds between two updates of the progress line at a terminal."""

LOG_INTERVAL_S = 10.0
"""Seconds between two progress lines without a terminal."""

BLOCKED_S = 10.0
"""Seconds in flight after which a key is stuck."""

DRAINING = "finishing what was read; a second signal leaves it to the next worker"
LEAVING = "leaving what is not in flight to the next worker"


def run_until_signalled(
    consumer: ParallelConsumer, handler: Handler | HandlerFactory, ended: Callable[[ConsumerHealth], bool] | None = None
) -> None:
    """Run a consumer until a signal, or until ``ended`` returns True; raise the consumer's error if it fails.

    The first SIGTERM or SIGINT drains it, the second one stops it without draining, and the third ends the process.
    """
    console = Console(stderr=True)
    every = TERMINAL_INTERVAL_S if console.is_terminal else LOG_INTERVAL_S
    progress = ProgressLine(time.monotonic())
    with (
        _signals(consumer) as heard,
        console.status("starting") as status,
        ThreadPoolExecutor(1, "wasmline-owner") as thread,
    ):
        running = thread.submit(consumer.run, handler)
        try:
            shown = time.monotonic()
            while wait([running], timeout=POLL_INTERVAL_S).not_done:
                _acknowledge(heard, console)
                health = consumer.health()
                if ended and ended(health):
                    consumer.stop()
                if (now := time.monotonic()) - shown < every:
                    continue
                shown, line = now, progress.line(health, now)
                if console.is_terminal:
                    status.update(escape(line))
                else:
                    click.echo(line, err=True)
        finally:
            consumer.stop(drain=False)
    _acknowledge(heard, console)
    click.echo(summary(consumer.health()), err=True)
    running.result()


@contextmanager
def _signals(consumer: ParallelConsumer) -> Iterator[deque[str]]:
    """Stop the consumer on signals; yield the messages to print, because a signal handler must not write."""
    heard: deque[str] = deque()
    drained = False

    def stop(number: int, _: object) -> None:
        nonlocal drained
        again, drained = drained, True
        consumer.stop(drain=not again)
        heard.append(LEAVING if again else DRAINING)
        if again:
            signal.signal(number, signal.SIG_DFL)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield heard
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _acknowledge(heard: deque[str], console: Console) -> None:
    while heard:
        console.print(heard.popleft(), soft_wrap=True, highlight=False)


class ProgressLine:
    """Formats a consumer's health as one line; the rate is since the previous line."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._records = 0

    def line(self, health: ConsumerHealth, now: float) -> str:
        """Return the line at ``now``, in seconds of a monotonic clock."""
        counters = health.counters
        rate = (counters.records - self._records) / (now - self._now)
        self._now, self._records = now, counters.records
        lags = [each.lag for each in health.partitions if each.lag is not None]
        parts = [
            f"{health.state}: {counters.records:,} records",
            f"{rate:,.0f}/s",
            f"lag {sum(lags):,}" if lags else "lag unknown",
            f"{sum(each.in_flight for each in health.partitions):,} in flight",
        ]
        if counters.given_up:
            parts.append(f"{counters.given_up:,} dead letters")
        if held := [key for key in health.waiting if key.error is not None or (key.seconds or 0) >= BLOCKED_S]:
            parts.append(f"{len(held)} keys blocked, first {_held(held[0])}")
        return printable(", ".join(parts))


def summary(health: ConsumerHealth) -> str:
    """Return the totals of a consumer that has ended."""
    counters = health.counters
    failures = f"{counters.failures:,} attempts failed, {counters.given_up:,} dead letters"
    return f"{health.state}: {counters.records:,} records done, {failures}"


def _held(key: WaitingKey) -> str:
    place = f"{key.partition}@{key.offset}"
    since = f" in flight for {key.seconds:.0f} s" if key.seconds is not None else ""
    return f"{place}{since}" + (f" after {key.error}" if key.error else "")
