"""``wasmline status``: shows the status of a job, once or until its run ends."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from wasmline.cli.options import kafka_config, kafka_option
from wasmline.cli.table import aligned
from wasmline.clock import now_ms
from wasmline.printable import printable

if TYPE_CHECKING:
    from wasmline.control import JobStatus, JobStatusReader, PartitionTotals
    from wasmline.partition_status import PartitionStatus

POLL_INTERVAL_S = 1.0
"""Seconds between two polls."""

COLUMNS = (
    "PARTITION",
    "GENERATION",
    "STATE",
    "OFFSET",
    "LAG",
    "RATE",
    "IN FLIGHT",
    "STUCK KEYS",
    "RETRIES",
    "SINCE",
    "AGE",
    "DEAD LETTERS",
)


@click.command()
@click.argument("job")
@kafka_option
@click.option("--watch/--once", default=None, help="Repeat until the run ends, or Ctrl-C.  [default: at a terminal]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --watch one per line, at each change.")
def status(job: str, settings: tuple[tuple[str, str], ...], watch: bool | None, as_json: bool) -> None:
    """Show the status of a job's run, and of each partition that it reads.

    RATE is in records per second, SINCE the first offset of the generation, AGE the time since the driver's last
    report. Lags are current.
    """
    from wasmline.control import JobStatusReader

    board = JobStatusReader(kafka_config(settings))
    terminal = sys.stdout.isatty() and not as_json
    try:
        if terminal and watch is not False:
            _live(board, job)
        elif watch:
            _lines(board, job, as_json)
        else:
            click.echo(_shown(board.read_status(job), as_json))
    except KeyboardInterrupt:
        click.echo()
    finally:
        board.close()


def _live(board: JobStatusReader, job: str) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    standing = board.read_status(job)
    with Live(console=Console(), auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            live.update(Text(text(standing, now_ms()), no_wrap=True, overflow="crop"), refresh=True)
            if standing.ended:
                return
            time.sleep(POLL_INTERVAL_S)
            standing = board.read_status(job)


def _lines(board: JobStatusReader, job: str, as_json: bool) -> None:
    told = None
    while True:
        standing = board.read_status(job)
        if standing != told:
            click.echo(_shown(standing, as_json) + ("" if as_json else "\n"))
            told = standing
        if standing.ended:
            return
        time.sleep(POLL_INTERVAL_S)


def _shown(standing: JobStatus, as_json: bool) -> str:
    if not as_json:
        return text(standing, now_ms())
    from wasmline.documents import encode

    return encode(document(standing)).decode()


def document(standing: JobStatus) -> dict[str, Any]:
    """Return a job status as JSON-able values; ``partitions`` have the fields of PartitionStatus."""
    from wasmline.control import PartitionTotals
    from wasmline.documents import plain

    order, report = standing.order, standing.report
    stream = order.spec.stream
    return {
        "job": order.spec.job,
        "run": order.spec.run,
        "wanted": order.wanted,
        "stopped_by": order.stopped_by,
        "state": report.state.value if report else None,
        "message": report.message if report else "",
        "error": report.error if report else None,
        "updated_ms": report.updated_ms if report else None,
        "mode": stream.mode if stream else None,
        "delivery": stream.delivery if stream else None,
        "totals": plain(PartitionTotals.of(standing.partitions)),
        "partitions": plain(standing.partitions),
    }


def text(standing: JobStatus, now: int) -> str:
    """Return a job status as text at Unix time ``now`` in milliseconds."""
    from wasmline.control import PartitionTotals

    lines = [printable(_run(standing, now))]
    if standing.partitions:
        totals = PartitionTotals.of(standing.partitions)
        rows = [_row(each, now) for each in standing.partitions]
        lost = f", {totals.lost_offsets:,} offsets lost" if totals.lost_offsets else ""
        lines.append(f"{totals.records_in:,} records in, {totals.records_out:,} out{lost}")
        lines.append(aligned([COLUMNS, *rows, _sums(totals)]))
    return printable("\n".join(lines), lines=True)


def _run(standing: JobStatus, now: int) -> str:
    spec, report = standing.order.spec, standing.report
    words = [spec.job, "ordered" if report is None else report.state.value]
    if standing.order.wanted == "stopped" and not standing.ended:
        words[1] += ", stop requested"
    elif standing.order.is_stopped_by_user:
        words[1] += ", to stay stopped"
    elif standing.order.paused:
        words[1] += ", paused"
    if spec.stream is not None:
        words += [f"mode {spec.stream.mode}", spec.stream.delivery.replace("_", " ")]
    words.append(f"run {spec.run}")
    if report is not None:
        words.append(f"{_age(now - report.updated_ms)} ago")
        words += filter(None, [": ".join(filter(None, (report.error, report.message)))])
    return ", ".join(words)


def _row(status: PartitionStatus, now: int) -> tuple[str, ...]:
    return (
        str(status.partition),
        str(status.generation),
        status.state,
        f"{status.offset:,}",
        *_load(status),
        f"{status.since_offset:,}",
        _age(now - status.updated_ms),
        _letters(status.dead_letters),
    )


def _sums(totals: PartitionTotals) -> tuple[str, ...]:
    return ("TOTAL", "", "", "", *_load(totals), "", "", _letters(totals.dead_letters))


def _load(of: PartitionStatus | PartitionTotals) -> tuple[str, ...]:
    return f"{of.lag:,}", f"{of.rate:,.1f}", f"{of.in_flight:,}", f"{of.stuck_keys:,}", f"{of.retries:,}"


def _letters(reasons: dict[str, int]) -> str:
    each = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
    return f"{sum(reasons.values()):,}" + (f" ({each})" if each else "")


def _age(ms: int) -> str:
    seconds = max(0, ms) // 1000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
