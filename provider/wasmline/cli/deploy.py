"""``wasmline deploy``, ``list``, ``pause`` and ``resume``: deployments of a cluster, in rpk's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wasmline.cli.confirmation import change_cause, confirm_at_terminal, user_name
from wasmline.cli.json_output import echo_result
from wasmline.cli.options import (
    Variable,
    clock_option,
    json_option,
    kafka_config,
    kafka_option,
    provenance_option,
    reason_option,
    registry_option,
    schemas_option,
    yes_option,
)
from wasmline.cli.table import aligned
from wasmline.printable import printable

if TYPE_CHECKING:
    from wasmline.control import Deployment
    from wasmline.kafka import KafkaConfig
    from wasmline.partition_status import PartitionStatus
    from wasmline.wasm import Schema
    from wasmline.wasm.transform_context import Clock

Command = TypeVar("Command", bound=Callable[..., Any])


@click.command()
@click.argument("reference", metavar="NAME@VERSION|FOLDER")
@registry_option
@kafka_option
@click.option("-i", "--input-topic", help="Read from this topic instead of the declared one.")
@click.option("-o", "--output-topic", "output_topics", multiple=True, help="Write to this topic instead; repeatable.")
@click.option("--dead-letter-topic", help="Keep failed records in this topic instead.")
@click.option(
    "--var",
    "--env",
    "variables",
    type=Variable(),
    multiple=True,
    metavar="K=V",
    help="A variable of the guest; repeatable.",
)
@clock_option
@schemas_option
@provenance_option
@click.option("--max-failure-share", type=float, help="Pause when more records fail, from above 0 to 1; default 0.5.")
@click.option("--expected-generation", type=int, help="Fail unless this generation is current (0: none yet).")
@reason_option
def deploy(
    reference: str,
    registry: str,
    settings: tuple[tuple[str, str], ...],
    input_topic: str | None,
    output_topics: tuple[str, ...],
    dead_letter_topic: str | None,
    variables: tuple[tuple[str, str], ...],
    clock: Clock,
    schemas: tuple[Schema, ...],
    provenance: bool,
    max_failure_share: float | None,
    expected_generation: int | None,
    reason: str,
) -> None:
    """Deploy a published version onto its topics.

    Options override the values that its transform.yaml declares. FOLDER stands for the version in its transform.yaml.
    A running job switches to the new generation at its next batch. A specification that is deployed already makes no
    new generation; a paused one is resumed.
    """
    from wasmline.control import DeploymentSpec
    from wasmline.control import deploy as deploy_spec
    from wasmline.registry import FilesystemRegistry

    version, wasm = FilesystemRegistry(registry).load(*_named(reference))
    spec = DeploymentSpec.of(
        version,
        input_topic=input_topic,
        output_topics=output_topics or None,
        dead_letter_topic=dead_letter_topic,
        env={**version.metadata.transform.get("env", {}), **dict(variables)},
        max_failure_share=max_failure_share,
        clock=clock,
        schemas=schemas,
        provenance=provenance,
    )
    cause = change_cause(reason)
    deployment = deploy_spec(kafka_config(settings), spec, wasm, expected_generation=expected_generation, cause=cause)
    click.echo(f'transform "{spec.name}" deployed: {version}, generation {deployment.generation}')


job_flag = click.option("--job", "of_job", is_flag=True, help="NAME is a job that runs a function.")


@click.command()
@click.argument("name")
@kafka_option
@job_flag
@click.option(
    "--reason", default="paused from the command line", show_default=True, help="Shown by list; kept in the history."
)
@yes_option
@json_option
def pause(
    name: str, settings: tuple[tuple[str, str], ...], of_job: bool, reason: str, yes: bool, as_json: bool
) -> None:
    """Pause a deployment: its jobs start no further batch. A function is paused by its job."""
    from contextlib import closing

    from wasmline.control import DeploymentTopic, JobTopic

    config = kafka_config(settings)
    if not yes:
        confirm_at_terminal(f"Pause {_kind(of_job)} {name}? It stays paused until somebody resumes it.")
    if of_job:
        with closing(JobTopic(config)) as jobs:
            jobs.pause(name, reason, cause=change_cause(reason))
    else:
        with closing(DeploymentTopic(config)) as deployments:
            deployments.pause(name, reason, by=user_name())
    echo_result({_kind(of_job): name, "state": "paused"}, f"{_noun(of_job)} paused!", as_json)


@click.command()
@click.argument("name")
@kafka_option
@job_flag
@reason_option
@yes_option
@json_option
def resume(
    name: str, settings: tuple[tuple[str, str], ...], of_job: bool, reason: str, yes: bool, as_json: bool
) -> None:
    """Resume a paused deployment, or the job of a paused function, from its progress."""
    from contextlib import closing

    from wasmline.control import DeploymentTopic, JobTopic

    config, cause = kafka_config(settings), change_cause(reason)
    if not yes:
        confirm_at_terminal(f"Resume {_kind(of_job)} {name}?")
    if of_job:
        with closing(JobTopic(config)) as jobs:
            jobs.resume(name, cause=cause)
    else:
        with closing(DeploymentTopic(config)) as deployments:
            deployments.resume(name, cause=cause)
    echo_result({_kind(of_job): name, "state": "running"}, f"{_noun(of_job)} resumed!", as_json)


def _kind(of_job: bool) -> str:
    return "job" if of_job else "transform"


def _noun(of_job: bool) -> str:
    return "Function" if of_job else "Transform"


@click.command(name="list")
@kafka_option
@click.option("-d", "--detailed", is_flag=True, help="One line for each partition.")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
def list_(settings: tuple[tuple[str, str], ...], detailed: bool, style: str) -> None:
    """List the deployed transforms with their progress."""
    from wasmline.control import DeploymentTopic, StatusTopic
    from wasmline.kafka import Topics

    config = kafka_config(settings)
    deployments = list(DeploymentTopic(config).all().values())
    statuses: dict[str, list[PartitionStatus]] = {}
    for status in _living(config, StatusTopic(config).all()):
        statuses.setdefault(status.transform, []).append(status)
    bounds = Topics(config).bounds({deployment.spec.input_topic for deployment in deployments})
    listed = [
        _summary(deployment, statuses.get(deployment.spec.name, []), bounds.get(deployment.spec.input_topic, {}))
        for deployment in deployments
    ]
    if style == "json":
        _echo_json(listed, detailed)
    elif detailed:
        _echo_detailed(listed)
    else:
        _echo_table(listed)


def _living(config: KafkaConfig, statuses: list[PartitionStatus]) -> list[PartitionStatus]:
    """Return the statuses oldest first; ``stopped`` if the job's run has ended, as a killed driver cannot report it.

    A report of another release is named on stderr, and says nothing of its job.
    """
    from contextlib import closing
    from dataclasses import replace

    from wasmline.control import JobTopic

    with closing(JobTopic(config)) as jobs:
        overviews = jobs.overviews()
    for problem in filter(None, (each.problem for each in overviews)):
        click.echo(printable(problem), err=True)
    ended = {each.order.spec.job for each in overviews if each.report is not None and each.report.state.final}
    shown = [replace(each, state="stopped") if each.job in ended else each for each in statuses]
    return sorted(shown, key=lambda status: status.updated_ms)


def _named(reference: str) -> tuple[str, str | None]:
    from wasmline.build import load_project
    from wasmline.registry import parse_reference

    if "@" not in reference and Path(reference).is_dir():
        project = load_project(reference)
        return project.name, project.version
    return parse_reference(reference)


def _summary(
    deployment: Deployment, statuses: list[PartitionStatus], bounds: Mapping[int, tuple[int, int]]
) -> dict[str, Any]:
    """Return rpk's fields of one transform, with the last reported state and the current lag of each partition.

    ``bounds``: the beginning and end offset of each partition of the input topic.
    """
    spec = deployment.spec
    known = {status.partition: status for status in statuses if status.topic == spec.input_topic}
    partitions = []
    for partition, (begin, end) in sorted(bounds.items()):
        status = known.get(partition)
        state = "inactive" if status is None or status.state in ("stopped", "paused") else status.state
        lag = max(0, end - (status.offset if status else begin))
        host = status.host if status is not None and state != "inactive" else ""
        partitions.append({"partition": partition, "node": host or None, "status": state, "lag": lag})
    return {
        "name": spec.name,
        "input_topic": spec.input_topic,
        "output_topics": list(spec.output_topics),
        "environment": dict(spec.env),
        "running": sum(each["status"] == "running" for each in partitions),
        "lag": sum(each["lag"] for each in partitions),
        "compression": spec.compression,
        "version": spec.version,
        "generation": deployment.generation,
        "state": deployment.state,
        "reason": deployment.reason,
        "status": partitions,
    }


def _echo_json(listed: list[dict[str, Any]], detailed: bool) -> None:
    import json

    shown = listed if detailed else [{k: v for k, v in each.items() if k != "status"} for each in listed]
    click.echo(json.dumps(shown, indent=2))


def _echo_table(listed: list[dict[str, Any]]) -> None:
    rows = [["NAME", "INPUT TOPIC", "OUTPUT TOPIC", "RUNNING", "LAG"]]
    rows += [
        [
            each["name"],
            each["input_topic"],
            ", ".join(each["output_topics"]),
            f"{each['running']} / {len(each['status'])}",
            str(each["lag"]),
        ]
        for each in listed
    ]
    click.echo(aligned(rows))


def _echo_detailed(listed: list[dict[str, Any]]) -> None:
    for each in listed:
        click.echo(printable(f"{each['name']}, {each['input_topic']} → {', '.join(each['output_topics'])}"))
        if each["state"] == "paused":
            click.echo(f"  paused: {printable(each['reason'])}")
        rows = [["PARTITION", "NODE", "STATUS", "LAG"]]
        rows += [
            [str(status["partition"]), status["node"] or "-", status["status"], str(status["lag"])]
            for status in each["status"]
        ]
        click.echo(aligned(rows, indent="      "))
