"""``wasmline dead-letters list | show | redrive``: the records that failed, and their way back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wasmline.cli.confirmation import change_cause, require_confirmed
from wasmline.cli.json_output import echo_json
from wasmline.cli.options import json_option, kafka_config, kafka_option, record_arguments, yes_option
from wasmline.cli.table import aligned
from wasmline.moments import moment
from wasmline.printable import bounded_line, printable

if TYPE_CHECKING:
    from wasmline.control import DeadLetterSelection, Redrive, RedriveState
    from wasmline.redrive import RedrivePlan, StoredDeadLetter, Timestamps

Command = TypeVar("Command", bound=Callable[..., Any])

MAX_SHOWN = 1_000
"""Dead letters that ``list`` shows one by one, unless told otherwise."""

LABEL_COLUMNS = 17

EXIT_INCOMPLETE = 3


@click.group(name="dead-letters")
def dead_letters() -> None:
    """List, show and redrive dead letters: records that failed, kept unchanged with the reason."""


def _selection_options(command: Command) -> Command:
    """Add the options of a DeadLetterSelection."""
    for option in (
        click.option("--source-topic", metavar="TOPIC", help="Of records of this topic only."),
        click.option("--reason-contains", metavar="TEXT", help="With this text in the reason only."),
        click.option("--error", metavar="CLASS", help="With this error only, such as GuestTrap or Rejected."),
        click.option("--transform", metavar="NAME", help="Of this transform only."),
    ):
        command = option(command)
    return command


@dead_letters.command(name="list")
@click.argument("topic", required=False)
@kafka_option
@_selection_options
@click.option("--pending", is_flag=True, help="Without the dead letters that were redriven.")
@click.option("-d", "--detailed", is_flag=True, help="One line for each dead letter, oldest first within a partition.")
@click.option("--limit", type=click.IntRange(min=1), help=f"Lines of --detailed.  [default: {MAX_SHOWN:,}]")
@json_option
def list_(
    topic: str | None,
    settings: tuple[tuple[str, str], ...],
    pending: bool,
    detailed: bool,
    limit: int | None,
    as_json: bool,
    **selected: Any,
) -> None:
    """Count the dead letters of a dead-letter topic by transform, error and source; without TOPIC, name the topics.

    PENDING dead letters were not redriven yet.
    """
    if topic is None and (pending or detailed or any(selected.values())):
        raise click.UsageError("name the topic")
    if limit is not None and not detailed:
        raise click.UsageError("--limit is for --detailed")
    config = kafka_config(settings)
    if topic is None:
        from wasmline.redrive.dead_letter_topics import find_dead_letter_topics

        found = find_dead_letter_topics(config)
        if as_json:
            echo_json([{"topic": name, "used_by": users} for name, users in found.items()])
        else:
            click.echo(aligned([["TOPIC", "USED BY"], *([name, ", ".join(users)] for name, users in found.items())]))
        return
    from wasmline.control import DeadLetterSelection
    from wasmline.redrive import DeadLetterReader, dead_letter_document

    reader, selection = DeadLetterReader(config, topic), DeadLetterSelection(**selected)
    state = reader.state()
    letters = (
        letter for letter in reader.read() if letter.matches(selection) and not (pending and letter.is_redriven(state))
    )
    if not detailed:
        _echo_counts(letters, state, as_json)
        return
    shown = list(islice(letters, limit := limit or MAX_SHOWN))
    if as_json:
        echo_json([dead_letter_document(letter, state) for letter in shown])
    else:
        rows = [["PARTITION", "OFFSET", "TIME", "STATE", "TRANSFORM", "ERROR", "SOURCE", "KEY", "REASON"]]
        click.echo(aligned(rows + [_row(letter, state) for letter in shown]))
    if next(letters, None) is not None:
        click.echo(f"there are more than {limit:,} dead letters: see --limit", err=True)


@dead_letters.command()
@record_arguments
@kafka_option
@json_option
def show(topic: str, partition: int, offset: int, settings: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """Show a dead letter whole: its failure, and the record that failed, with key, value and headers."""
    from wasmline.build.jsonl import encoded
    from wasmline.redrive import DeadLetterReader, dead_letter_document

    reader = DeadLetterReader(kafka_config(settings), topic)
    document = dead_letter_document(reader.read_one(partition, offset), reader.state())
    if as_json:
        echo_json(document)
        return
    for name, value in document.items():
        if value is None:
            continue
        text = moment(value) if name == "timestamp" else value if isinstance(value, str) else encoded(value).decode()
        click.echo(f"{name.replace('_', ' '):{LABEL_COLUMNS}}{printable(text)}")


@dead_letters.command()
@click.argument("topic")
@kafka_option
@_selection_options
@click.option("--partition", type=click.IntRange(min=0), help="Of this partition of TOPIC only.")
@click.option("--offset", type=click.IntRange(min=0), help="At this offset only; with --partition.")
@click.option("--to-source", is_flag=True, help="Write each record to the topic and partition that it comes from.")
@click.option("--to", "to_topic", metavar="TOPIC", help="Write all records to this topic.")
@click.option("--through", metavar="NAME", help="Process them by the current generation of this transform.")
@click.option("--limit", type=click.IntRange(min=1), help="Redrive at most so many.")
@click.option(
    "--timestamps",
    type=click.Choice(["keep", "now"]),
    default="keep",
    show_default=True,
    help="Of records that go to a topic: those of their dead letters, or the current time.",
)
@click.option("--reason", required=True, help="Why you redrive; kept with the redrive. It selects nothing.")
@click.option("--dry-run", is_flag=True, help="Only say what would be redriven.")
@yes_option
@json_option
def redrive(
    topic: str,
    settings: tuple[tuple[str, str], ...],
    partition: int | None,
    offset: int | None,
    to_source: bool,
    to_topic: str | None,
    through: str | None,
    limit: int | None,
    timestamps: Timestamps,
    reason: str,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **selected: Any,
) -> None:
    """Write the dead letters of TOPIC again that were not redriven yet.

    One of --to-source, --to and --through is required. All groups that read the topic of a record process it; with
    --through, only the transform does, and its outputs go to its topics. A record is as it was before it failed. Each
    is redriven once, also if this is killed and run again. The order within a key is kept among them, not with the
    records that were written meanwhile. Ends with 3 if some stay pending or failed again.
    """
    from wasmline.redrive import plan_redrive, run_redrive

    if sum((to_source, to_topic is not None, through is not None)) != 1:
        raise click.UsageError("exactly one of --to-source, --to and --through is required")
    if through is not None and (selected["source_topic"] is not None or timestamps != "keep"):
        raise click.UsageError("--through reads records of its input topic and keeps their times")
    config = kafka_config(settings)
    cause = change_cause(reason)
    selection = _selection(partition, offset, selected)
    plan = plan_redrive(
        config, topic, selection, to_topic=to_topic, timestamps=timestamps, through=through, limit=limit
    )
    for line in _plan_lines(plan):
        click.echo(bounded_line(line), err=True)
    if dry_run or not plan.dead_letters:
        if as_json:
            echo_json({"topic": topic, "pending": plan.dead_letters, "dead_letters": 0})
        return
    if not yes:
        require_confirmed("Redrive them?")
    done = run_redrive(config, plan, cause=cause, progress=_echo_progress)
    if as_json:
        echo_json(done)
    else:
        click.echo(bounded_line(_summary(done)))
        for why, count in done.skipped.items():
            click.echo(f"{count:,} dead letters stay pending: {printable(why)}", err=True)
    if done.skipped or done.failed_again:
        sys.exit(EXIT_INCOMPLETE)


@dead_letters.command()
@click.argument("topic")
@kafka_option
@json_option
def redrives(topic: str, settings: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """List the redrives of a dead-letter topic, oldest first: by whom, why, to where, and what they did."""
    from wasmline.redrive import DeadLetterReader

    known = DeadLetterReader(kafka_config(settings), topic).state().redrives.values()
    found = sorted(known, key=lambda each: each.started_ms)
    if as_json:
        echo_json(found)
        return
    rows = [["TIME", "STATE", "TO", "DEAD LETTERS", "FAILED AGAIN", "SKIPPED", "BY", "RUN", "REASON"]]
    for each in found:
        where = f"through {each.through}" if each.through else each.to_topic or "their sources"
        texts = (each.cause.by, each.cause.run, each.cause.reason)
        rows.append(
            [
                moment(each.started_ms),
                each.state,
                where,
                f"{each.dead_letters:,}",
                f"{each.failed_again:,}",
                f"{sum(each.skipped.values()):,}",
                *(bounded_line(text) or "-" for text in texts),
            ]
        )
    click.echo(aligned(rows))


def _echo_counts(letters: Iterable[StoredDeadLetter], state: RedriveState, as_json: bool) -> None:
    from wasmline.redrive import count_dead_letters

    counts = count_dead_letters(letters, state)
    if as_json:
        echo_json(counts)
        return
    rows = [["TRANSFORM", "ERROR", "SOURCE TOPIC", "DEAD LETTERS", "PENDING", "FIRST", "LAST"]]
    for count in counts:
        texts = (bounded_line(each) or "-" for each in (count.transform, count.error, count.source_topic))
        times = (moment(count.first_ms), moment(count.last_ms))
        rows.append([*texts, f"{count.dead_letters:,}", f"{count.pending:,}", *times])
    click.echo(aligned(rows))


def _row(letter: StoredDeadLetter, state: RedriveState) -> list[str]:
    failure = letter.failure
    key = "" if letter.key is None else letter.key[:200].decode(errors="replace")
    texts = (failure.transform_reference, failure.error, failure.position, key, failure.reason)
    return [
        str(letter.topic_partition.partition),
        str(letter.offset),
        moment(letter.timestamp),
        "redriven" if letter.is_redriven(state) else "pending",
        *(bounded_line(text or "") or "-" for text in texts),
    ]


def _selection(partition: int | None, offset: int | None, selected: dict[str, Any]) -> DeadLetterSelection:
    from wasmline.control import DeadLetterSelection

    if offset is not None and partition is None:
        raise click.UsageError("--offset needs --partition")
    return DeadLetterSelection(partition=partition, offset=offset, **selected)


def _plan_lines(plan: RedrivePlan) -> Iterator[str]:
    for group, count in plan.pending.items():
        of = f" of {group.transform}" if group.transform else ""
        source = f", records of {group.source_topic}" if group.source_topic else ", which name no source"
        yield f"{count:,} dead letters{of}: {group.error or 'no error'}{source}"
    if plan.deployment is not None:
        spec = plan.deployment.spec
        where = f"go through {spec.name}@{spec.version} to {', '.join(spec.output_topics)}"
    elif plan.to_topic is not None:
        where = f"go to {plan.to_topic}, where all groups that read it process them"
    else:
        where = "go to the topics that they come from, where all groups that read these process them"
    yield f"{plan.dead_letters:,} dead letters of {plan.topic.name} {where}"


def _echo_progress(redrive: Redrive) -> None:
    if redrive.state == "running":
        click.echo(f"{redrive.dead_letters:,} dead letters", err=True)


def _summary(done: Redrive) -> str:
    text = f"{done.dead_letters:,} dead letters of {done.topic} redriven"
    if done.through is not None:
        text += f" through {done.through}: {done.outputs:,} outputs, {done.failed_again:,} failed again"
    return text
