"""``wasmline jobs``, ``stop``, ``delete`` and ``withdraw``: the jobs of a cluster, and the end of their runs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from wasmline.cli.confirmation import change_cause, confirm_at_terminal, require_confirmed
from wasmline.cli.json_output import echo_json, echo_result
from wasmline.cli.options import json_option, kafka_config, kafka_option, reason_option, yes_option
from wasmline.cli.table import aligned
from wasmline.clock import now_ms
from wasmline.printable import bounded_line

if TYPE_CHECKING:
    from wasmline.control import JobOverview


@click.command()
@kafka_option
@json_option
def jobs(settings: tuple[tuple[str, str], ...], as_json: bool) -> None:
    """List the jobs, with the state of their runs.

    A silent run has not reported for so long that its driver counts as dead. WANTED is stopped once a stop is
    requested, and paused for a paused function. AGE is the time since the last report.
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
    from wasmline.control import stop_job

    config = kafka_config(settings)
    cause = change_cause(reason)
    if not yes:
        confirm_at_terminal(f"Stop job {job}? It stays stopped until somebody starts it.")
    ended = stop_job(config, job, cause=cause, timeout_s=wait_s)
    state = ended.state.value if ended.state is not None else "no driver"
    echo_result({"job": job, "run": ended.run, "state": state}, f"job {job}, run {ended.run}: {state}", as_json)


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
    from wasmline.control import delete_job

    config = kafka_config(settings)
    cause = change_cause(reason)
    if not yes:
        require_confirmed(f"Delete job {job}?")
    run = delete_job(config, job, cause=cause)
    echo_result({"job": job, "run": run}, f"job {job} deleted", as_json)


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
    from wasmline.control import withdraw_leases

    config = kafka_config(settings)
    cause = change_cause(reason)
    if not yes:
        confirm_at_terminal(f"Withdraw the current leases of job {job}?")
    done = withdraw_leases(config, job, cause=cause)
    document = {"job": job, "driver": done.driver, "epoch": done.epoch}
    echo_result(document, f"job {job}: round {done.epoch} of its leases ends", as_json)


def _row(each: JobOverview, now: int) -> list[str]:
    report = each.report
    return [
        bounded_line(each.order.spec.job),
        each.condition(now),
        each.wanted,
        each.mode,
        each.delivery or "-",
        bounded_line(each.work or "-"),
        "-" if report is None else f"{max(0, now - report.updated_ms) // 1_000} s",
        bounded_line(each.message) or "-",
    ]
