"""``wasmline progress show | set``: where the next run of a job continues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from wasmline.cli.confirmation import change_cause, require_confirmed
from wasmline.cli.json_output import echo_json
from wasmline.cli.options import json_option, kafka_config, kafka_option, yes_option
from wasmline.cli.table import aligned
from wasmline.printable import bounded_line

if TYPE_CHECKING:
    from wasmline.job_offsets.progress_change import JobProgress


@click.group()
def progress() -> None:
    """Show and set where the next run of a job continues."""


@progress.command()
@click.argument("job")
@kafka_option
@json_option
def show(job: str, settings: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """Show the next offset to read of each partition of a job's input topic.

    COMMITTED is that of the consumer group, which other tools see. After micro-batches at least once that were killed,
    NEXT is where the last batch begins, which may be done.
    """
    from wasmline.job_offsets.progress_change import read_progress

    _echo(read_progress(kafka_config(settings), job), as_json)


@progress.command(name="set")
@click.argument("job")
@kafka_option
@click.option("--to", "target", required=True, metavar="start|end|OFFSET|+N|-N|TIME", help="Where to continue.")
@click.option("--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only these; repeatable.")
@click.option("--reason", required=True, help="Why; kept in the history of the job.")
@yes_option
@json_option
def set_(
    job: str,
    settings: tuple[tuple[str, str], ...],
    target: str,
    partitions: tuple[int, ...],
    reason: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Set where the next run of a job continues: the same for every mode and delivery.

    --to is the start (or earliest) or the end (or latest) of the topic, an offset, so many records after or before the
    current progress, or the first record of a time such as 2026-11-26T16:00:00Z. Progress that goes back processes
    records again, and writes their outputs again; progress that goes forward skips records. Refused while the job has
    a driver.
    """
    from wasmline.errors import InvalidJob
    from wasmline.job_offsets.progress_change import read_progress, set_progress
    from wasmline.job_offsets.progress_target import ProgressTarget

    config = kafka_config(settings)
    cause = change_cause(reason)
    to = ProgressTarget.parse(target, partitions)
    before = read_progress(config, job)
    wanted = to.resolve(config, before)
    if before.problem:
        click.echo(bounded_line(before.problem), err=True)
    for partition, offset in sorted(wanted.items()):
        click.echo(f"{before.topic.name}-{partition}: {_change(before.offsets.get(partition), offset)}", err=True)
    if not yes:
        require_confirmed(f"Set the progress of job {job}?")

    def confirmed(found: JobProgress) -> Mapping[int, int]:
        if (found.topic.id, found.offsets) != (before.topic.id, before.offsets):
            raise InvalidJob(f"the progress of job {job} has changed since it was shown: repeat this")
        return wanted

    _echo(set_progress(config, job, confirmed, cause=cause), as_json)


def _change(before: int | None, offset: int) -> str:
    if before is None:
        return f"unknown -> {offset}"
    moved = offset - before
    what = "stays" if not moved else f"skips {moved:,} offsets" if moved > 0 else f"repeats {-moved:,} offsets"
    return f"{before} -> {offset}, {what}"


def _echo(found: JobProgress, as_json: bool) -> None:
    from wasmline.job_offsets.progress_document import progress_document

    document = progress_document(found)
    if as_json:
        echo_json(document)
        return
    head = f"{document['job']}, {document['topic']}, mode {document['mode']}, {document['delivery'].replace('_', ' ')}"
    rows = [["PARTITION", "NEXT", "COMMITTED", "START", "END", "LAG"]]
    rows += [["-" if each is None else str(each) for each in row.values()] for row in document["partitions"]]
    problem = [bounded_line(found.problem)] if found.problem else []
    click.echo("\n".join([bounded_line(head), *problem, aligned(rows)]))
