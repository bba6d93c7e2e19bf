"""``wasmline history`` and ``wasmline rollback``: the generations of a deployment."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from wasmline.cli.confirmation import change_cause, require_confirmed
from wasmline.cli.json_output import echo_json
from wasmline.cli.options import json_option, kafka_config, kafka_option, yes_option
from wasmline.cli.table import aligned
from wasmline.moments import moment
from wasmline.printable import bounded_line

if TYPE_CHECKING:
    from wasmline.control import Deployment, DeploymentRollbackPlan, GenerationHistory, GenerationOffsets
    from wasmline.kafka import KafkaConfig

SHOWN_FIELDS = ("version", "digest", "input_topic", "output_topics", "dead_letter_topic")
"""Fields of a specification that a rollback shows with both values; of others only the name is shown."""


@click.command()
@click.argument("name")
@kafka_option
@click.option("-d", "--detailed", is_flag=True, help="Show, by job and partition, the offsets of each generation.")
@click.option("--job", "of_job", is_flag=True, help="NAME is a job: show who stopped or deleted it.")
@json_option
def history(name: str, settings: tuple[tuple[str, str], ...], detailed: bool, of_job: bool, as_json: bool) -> None:
    """Show the changes of a deployment: generation, time, action, user, run and reason.

    END OFFSET is excluded, and "-" until the job begins the next generation of the topic. In parallel mode some records
    from there on may have been processed by the generation before.
    """
    from wasmline.control import DeploymentTopic, HistoryTopic

    config = kafka_config(settings)
    if of_job:
        _show_job(config, name, as_json)
        return
    with closing(DeploymentTopic(config)) as deployments:
        current = deployments.get(name)
    generations = HistoryTopic(config).generations(name)
    if as_json:
        echo_json({"current": current, "generations": generations})
        return
    rows = [["GENERATION", "STATE", "VERSION", "TIME", "ACTION", "BY", "RUN", "REASON"]]
    for each in generations:
        rows += _event_rows(each, current)
    click.echo(aligned(rows))
    if all(each.number != current.generation for each in generations):
        text = f"generation {current.generation}, version {current.spec.version}, is current and not in the history: "
        click.echo(text + "an earlier release deployed it. It is recorded when it is replaced", err=True)
    if detailed:
        rows = [["GENERATION", "JOB", "TOPIC", "PARTITION", "BEGIN OFFSET", "END OFFSET"]]
        for each in generations:
            for offsets in each.offsets:
                rows += _offset_rows(offsets)
        click.echo()
        click.echo(aligned(rows))


@click.command()
@click.argument("name")
@kafka_option
@click.option("--to", "version", metavar="VERSION", help="The version to deploy again.  [default: the one before]")
@click.option("--to-generation", "generation", type=click.IntRange(min=1), help="The generation, instead of a version.")
@click.option("--expected-generation", type=int, help="Fail unless this generation is current.")
@click.option("--reason", required=True, help="Why; kept in the history.")
@yes_option
@json_option
def rollback(
    name: str,
    settings: tuple[tuple[str, str], ...],
    version: str | None,
    generation: int | None,
    expected_generation: int | None,
    reason: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Deploy an earlier generation again, with its topics, environment and limits, as the next generation.

    The default is the generation before the current one; if the current one was made by a rollback, the one before the
    generation that it restored. A running job switches at its next batch and continues at its committed offsets.
    """
    from wasmline.control import plan_deployment_rollback, roll_back_deployment

    if version is not None and generation is not None:
        raise click.UsageError("give --to or --to-generation, not both")
    config = kafka_config(settings)
    cause = change_cause(reason)
    plan = plan_deployment_rollback(
        config, name, version=version, generation=generation, expected_generation=expected_generation
    )
    for line in _plan_lines(plan):
        click.echo(bounded_line(line), err=True)
    if not yes:
        require_confirmed("Roll back?")
    deployment = roll_back_deployment(config, plan, cause=cause)
    if as_json:
        echo_json(deployment)
        return
    text = f'transform "{name}" rolled back: version {deployment.spec.version}, generation {deployment.generation}'
    click.echo(bounded_line(text))


def _show_job(config: KafkaConfig, job: str, as_json: bool) -> None:
    from wasmline.control import read_job_events

    events = read_job_events(config, job)
    if as_json:
        echo_json(events)
        return
    rows = [["TIME", "ACTION", "RUN", "BY", "DAG RUN", "REASON"]]
    for event in events:
        cause = event.cause
        texts = (event.run, cause.by, cause.run, cause.reason)
        rows.append([moment(event.changed_ms), event.action, *(bounded_line(text) or "-" for text in texts)])
    click.echo(aligned(rows))


def _plan_lines(plan: DeploymentRollbackPlan) -> list[str]:
    current, target = plan.current, plan.target
    lines = [
        f"transform {current.spec.name}: generation {current.generation}, version {current.spec.version}, is replaced",
        f"by version {target.spec.version} as it was deployed in generation {target.generation}",
    ]
    for name in plan.changed_fields:
        before, after = getattr(current.spec, name), getattr(target.spec, name)
        lines.append(f"{name}: {before} -> {after}" if name in SHOWN_FIELDS else f"{name} changes")
    if target.state == "paused":
        lines.append(f"generation {target.generation} was paused: {target.reason}")
    return lines


def _event_rows(generation: GenerationHistory, current: Deployment) -> list[list[str]]:
    state = generation.state(current)
    rows = []
    for event in generation.events:
        cause, restored = event.cause, event.restored_generation
        texts = (cause.by, cause.run, cause.reason)
        rows.append(
            [
                str(generation.number),
                state,
                event.deployment.spec.version,
                moment(event.deployment.updated_ms),
                event.action if restored is None else f"{event.action} to {restored}",
                *(bounded_line(text) or "-" for text in texts),
            ]
        )
    return rows


def _offset_rows(offsets: GenerationOffsets) -> list[list[str]]:
    start, end = offsets.start, offsets.end
    return [
        [
            str(start.generation),
            bounded_line(start.job),
            bounded_line(start.topic),
            str(partition),
            str(start.offsets.get(partition, "?")),
            "-" if end is None else str(end.get(partition, "?")),
        ]
        for partition in offsets.partitions
    ]
