"""Parallel mode beside the same worker without Spark: throughput, latency, and what it takes with nothing to do."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable

import psutil  # type: ignore[import-untyped]
from processes import cpu_seconds
from rich.progress import track
from stream.bench import Bench, traffic
from stream.row import Row, share, spread

from support.leases.lease_harness import LeaseHarness
from wasmline.kafka import read_to_end

THREADS = 32
"""Of each task."""

WAITING_KEYS = 1_000


def throughput(bench: Bench) -> Iterable[Row]:
    """Work off records that wait, each with a sleep of up to 5 ms, by Spark and without it, in turns."""
    records = bench.times(200_000, 20_000)
    rates: dict[str, list[float]] = {"on_spark": [], "beside_spark": []}
    for _ in track(range(bench.times(3, 1)), "throughput"):
        for name, found in rates.items():
            options = {"function": "lease_handlers:copy", "keys": WAITING_KEYS, "max_concurrency": THREADS}
            with bench.harness(**options, commit_interval_ms=200) as harness:
                harness.produce(records)
                with getattr(bench, name)(harness):
                    harness.until(lambda harness=harness: harness.committed() == records, "all that waited")  # type: ignore[misc]
                harness.finish()
                found.append(_rate(harness))
    yield Row(
        what="parallel mode, throughput over the plain worker's",
        figure=statistics.median(rates["on_spark"]) / statistics.median(rates["beside_spark"]),
        unit="×",
        goal=0.95,
        detail=" and ".join(spread(each) for each in rates.values()) + " records/s",
    )


def _rate(harness: LeaseHarness) -> float:
    """Return records a second by when their outputs were written, for as long as all tasks were at work."""
    times = defaultdict(list)
    for message in read_to_end(harness.config, harness.output):
        times[dict(message.headers() or [])["worker"]].append(message.timestamp()[1])
    begin, end = max(map(min, times.values())), min(map(max, times.values()))
    return sum(begin <= at < end for each in times.values() for at in each) * 1_000 / (end - begin)


def latency(bench: Bench) -> Iterable[Row]:
    """Time records from their writing to when a read_committed reader has them, by Spark and without it, in turns."""
    taken: dict[str, list[float]] = {"on_spark": [], "beside_spark": []}
    seconds = bench.times(30, 8)
    for _ in track(range(bench.times(3, 1)), "latency"):
        for name, found in taken.items():
            with bench.harness() as harness, getattr(bench, name)(harness), traffic(harness) as sightings:
                since = time.time()
                time.sleep(seconds)
                until = time.time()
                sightings.wait(until + 0.5)
                found += (each * 1_000 for each in sightings.latencies(since, until))
    shares = {
        name: "/".join(f"{share(found, part):.0f}" for part in (0.5, 0.9, 0.99)) + f" ({len(found):,}×)"
        for name, found in taken.items()
    }
    detail = f"p50/p90/p99 {shares['on_spark']}, plain {shares['beside_spark']} ms"
    ours, plain = taken.values()
    yield Row(what="latency, p50", figure=share(ours, 0.5), unit="ms", goal=60, at_most=True, detail=detail)
    figure = share(ours, 0.99) / share(plain, 0.99)
    yield Row(
        what="latency, p99 over the plain worker's", figure=figure, unit="×", goal=1.5, at_most=True, detail=detail
    )


def idle(bench: Bench) -> Iterable[Row]:
    """Count the CPU of all that holds a lease, the driver with it, with nothing to read."""
    seconds = bench.times(20, 5)
    with bench.harness() as harness, bench.on_spark(harness):
        with traffic(harness):
            pass
        time.sleep(3)
        before = _cpu()
        time.sleep(seconds)
        cores = {who: (spent - before[who]) / seconds for who, spent in _cpu().items()}
    yield Row(
        what="idle, with a lease",
        figure=sum(cores.values()),
        unit="cores",
        goal=0.1,
        at_most=True,
        detail=", ".join(f"{who} {each:.3f}" for who, each in cores.items()),
    )


def _cpu() -> dict[str, float]:
    """Return the CPU seconds of the driver, its JVM, and the Python processes below it."""
    found = cpu_seconds()
    mine = psutil.Process().cpu_times()
    return {"driver": mine.user + mine.system, "JVM": found["spark"], "planner and tasks": found["python"]}
