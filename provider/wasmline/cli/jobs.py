"""``wasmline stop`` and ``wasmline delete``: the end of a job's run, and of its order."""

from __future__ import annotations

import time
from contextlib import closing

import click

from wasmline.cli.options import kafka_config, kafka_option

POLL_INTERVAL_S = 0.25


@click.command()
@click.argument("job")
@kafka_option
@click.option("--wait", "wait_s", type=float, default=120, show_default=True, help="Seconds to wait for its end.")
def stop(job: str, settings: tuple[tuple[str, str], ...], wait_s: float) -> None:
    """Stop a job's run at its next safe point.

    A stopped job stays stopped until a user or a DAG starts it again; the supervising DAG leaves it as it is.
    """
    from wasmline.control import JobTopic, is_live
    from wasmline.errors import JobBusy

    with closing(JobTopic(kafka_config(settings))) as jobs:
        while not (order := jobs.order(job)).is_stopped_by_user:
            jobs.stop(job, order.spec.run)  # no effect if a supervisor replaces the run at this moment
        run = order.spec.run
        deadline = time.monotonic() + wait_s
        while (live := is_live(jobs, job, run)) and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL_S)
        report = jobs.report(job, run)
    if live:
        raise JobBusy(f"job {job} is told to stop, and run {run} has not ended in {wait_s:g} s", job=job, run=run)
    ended = report is not None and report.state.final
    click.echo(f"job {job}, run {run}: {report.state.value if report and ended else 'no driver'}")


@click.command()
@click.argument("job")
@kafka_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(job: str, settings: tuple[tuple[str, str], ...], yes: bool) -> None:
    """Forget a job that does not run: its order and its reports.

    Its progress stays: a job of the same name continues from it. A job of another name may have its transform or
    function then, and begins at its own starting offsets.
    """
    from wasmline.control import JobTopic, is_live
    from wasmline.errors import JobBusy, UnsupportedSpecVersion

    with closing(JobTopic(kafka_config(settings))) as jobs:
        try:
            run = jobs.order(job).spec.run
        except UnsupportedSpecVersion as error:
            click.echo(f"its order cannot be read by this release: {error}", err=True)
            run = ""
        if run and is_live(jobs, job, run):
            raise JobBusy(f"run {run} of job {job} is live: wasmline stop {job}", job=job, run=run)
        if not yes:
            click.confirm(f"Delete job {job}?", abort=True)
        jobs.delete(job, run)
    click.echo(f"job {job} deleted")
