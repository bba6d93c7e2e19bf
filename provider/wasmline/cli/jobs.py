"""``wasmline jobs``, ``stop``, ``delete`` and ``withdraw``: the jobs of a cluster, and the end of their runs."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from wasmline.cli.confirmation import change_cause, confirm_at_terminal, require_confirmed
from wasmline.cli.json_output import echo_json
from wasmline.cli.options import json_option, kafka_config, kafka_option, reason_option, yes_option
from wasmline.cli.table import aligned
from wasmline.clock import now_ms
from wasmline.printable import bounded_line

if TYPE_CHECKING:
    from wasmline.control import JobOverview

POLL_INTERVAL_S = 0.25


@click.command()
@kafka_option
@json_option
def jobs(settings: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """List the jobs, with the state of their runs.

    A silent run has not reported for so long that its driver counts as dead. WANTED is stopped once a stop is
    requested. AGE is the time since the last report.
    """
    from wasmline.control import JobTopic
    from wasmline.documents import plain

    with closing(JobTopic(kafka_config(settings))) as topic:
        found = topic.overviews()
    for problem in filter(None, (each.problem for each in found)):
        click.echo(bounded_line(problem), err=True)
    now = now_ms()
    if as_json:
        echo_json([{"condition": each.condition(now), **plain(each)} for each in found])
        return
    rows = [["JOB", "STATE", "WANTED", "MODE", "DELIVERY", "PROCESSES", "AGE", "MESSAGE"]]
    click.echo(aligned(rows + [_row(each, now) for each in found]))


@click.command()
@click.argument("job")
@kafka_option
@reason_option
@click.option("--wait", "wait_s", type=float, default=120, show_default=True, help="Seconds to wait for its end.")
@yes_option
@json_option
def stop(job: str, settings: tuple[tuple[str, str], ...], reason: str, wait_s: float, yes: bool, as_json: bool) -> None:
    """Stop a job's run at its next safe point.

    A stopped job stays stopped until a user or a DAG starts it again; the supervising DAG leaves it as it is.
    """
    from wasmline.control import JobTopic, is_live
    from wasmline.errors import JobBusy

    cause = change_cause(reason)
    with closing(JobTopic(kafka_config(settings))) as topic:
        order = topic.order(job)
        if not yes:
            confirm_at_terminal(f"Stop run {order.spec.run} of job {job}? It stays stopped until somebody starts it.")
        while not (order := topic.order(job)).is_stopped_by_user:
            topic.stop(job, order.spec.run, cause=cause)  # no effect if a supervisor replaces the run at this moment
        run = order.spec.run
        deadline = time.monotonic() + wait_s
        while (live := is_live(topic, job, run)) and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL_S)
        report = topic.report(job, run)
    if live:
        raise JobBusy(f"job {job} is told to stop, and run {run} has not ended in {wait_s:g} s", job=job, run=run)
    state = report.state.value if report is not None and report.state.final else "no driver"
    _echo({"job": job, "run": run, "state": state}, f"job {job}, run {run}: {state}", as_json)


@click.command()
@click.argument("job")
@kafka_option
@reason_option
@yes_option
@json_option
def delete(job: str, settings: tuple[tuple[str, str], ...], reason: str, yes: bool, as_json: bool) -> None:
    """Forget a job that does not run: its order and its reports.

    Its progress stays: a job of the same name continues from it. A job of another name may have its transform or
    function then, and begins at its own starting offsets.
    """
    from wasmline.control import JobTopic, is_live
    from wasmline.errors import JobBusy, UnsupportedSpecVersion

    cause = change_cause(reason)
    with closing(JobTopic(kafka_config(settings))) as topic:
        try:
            run = topic.order(job).spec.run
        except UnsupportedSpecVersion as error:
            click.echo(f"its order cannot be read by this release: {error}", err=True)
            run = ""
        if run and is_live(topic, job, run):
            raise JobBusy(f"run {run} of job {job} is live: wasmline stop {job}", job=job, run=run)
        if not yes:
            require_confirmed(f"Delete job {job}?")
        topic.delete(job, run, cause=cause)
    _echo({"job": job, "run": run}, f"job {job} deleted", as_json)


@click.command()
@click.argument("job")
@kafka_option
@reason_option
@yes_option
@json_option
def withdraw(job: str, settings: tuple[tuple[str, str], ...], reason: str, yes: bool, as_json: bool) -> None:
    """End the current round of leases of a job in parallel mode; its driver begins the next one at once.

    Its tasks end at their next safe point, and the next round divides the partitions anew.
    """
    from wasmline.control import JobTopic, is_live
    from wasmline.errors import InvalidJob

    cause = change_cause(reason)
    with closing(JobTopic(kafka_config(settings))) as topic:
        topic.order(job)
        claim = topic.last_claim(job)
        if claim is None or claim.mode != "parallel" or claim.batch_id < 0:
            raise InvalidJob(f"job {job} has no leases: its last run was not in parallel mode, or has begun none")
        if not is_live(topic, job, claim.run):
            raise InvalidJob(f"job {job} has no leases: run {claim.run} has no driver")
        if not yes:
            confirm_at_terminal(f"Withdraw round {claim.batch_id} of the leases of job {job}, run {claim.run}?")
        withdrawal = topic.withdraw(job, cause=cause)
    epoch = withdrawal.epoch if withdrawal is not None else claim.batch_id
    _echo({"job": job, "run": claim.run, "epoch": epoch}, f"job {job}: round {epoch} of its leases ends", as_json)


def _echo(document: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        echo_json(document)
    else:
        click.echo(bounded_line(text))


def _row(each: JobOverview, now: int) -> list[str]:
    spec, report = each.order.spec, each.report
    stream = spec.stream
    what = spec.processing or (f"trains {spec.train.model}" if spec.train else "-")
    texts = ("", "") if report is None else (report.error or "", report.message)
    return [
        bounded_line(spec.job),
        each.condition(now),
        each.order.wanted,
        stream.mode if stream else "training",
        stream.delivery if stream else "-",
        bounded_line(what),
        "-" if report is None else f"{max(0, now - report.updated_ms) // 1_000} s",
        bounded_line(": ".join(filter(None, texts))) or "-",
    ]
