"""The command line, ``wasmline COMMAND``. A command's module is imported only when the command is used."""

from __future__ import annotations

import importlib
import logging
import traceback

import click

from wasmline import __version__
from wasmline.errors import BuildFailed, ModuleError, RegistryError, SampleMismatch, WasmlineError
from wasmline.extras import missing_extra
from wasmline.printable import printable

__all__ = ["main"]

COMMANDS = {
    "init": ("wasmline.cli.project:init", "Write a new transform project."),
    "build": ("wasmline.cli.project:build", "Build a project to a WebAssembly module."),
    "test": ("wasmline.cli.project:test", "Run a project's samples."),
    "inspect": ("wasmline.cli.inspect:inspect", "Describe a module, and its compatibility with a broker."),
    "publish": ("wasmline.cli.publish:publish", "Publish a project's module to the registry."),
    "run": ("wasmline.cli.run:run", "Try a transform on JSON Lines, without a broker."),
    "worker": ("wasmline.cli.worker:worker", "Run a function or a transform on topics, many keys at a time."),
    "launcher": ("wasmline.cli.launcher:launcher", "Start the drivers of jobs on this machine."),
    "deploy": ("wasmline.cli.deploy:deploy", "Deploy a version onto its topics."),
    "history": ("wasmline.cli.deployment_history:history", "Show the generations of a deployment, by whom and why."),
    "rollback": ("wasmline.cli.deployment_history:rollback", "Deploy an earlier generation again."),
    "list": ("wasmline.cli.deploy:list_", "List the deployed transforms."),
    "status": ("wasmline.cli.status:status", "Show the status of a job's run, live at a terminal."),
    "explain": ("wasmline.cli.explain:explain", "Tell where a record comes from: module, model and sources."),
    "pause": ("wasmline.cli.deploy:pause", "Pause a deployment."),
    "resume": ("wasmline.cli.deploy:resume", "Resume a paused deployment."),
    "logs": ("wasmline.cli.logs:logs", "Show what the guests of a transform have logged."),
    "jobs": ("wasmline.cli.jobs:jobs", "List the jobs, with the state of their runs."),
    "dead-letters": ("wasmline.cli.dead_letters:dead_letters", "List, show and redrive dead letters."),
    "stop": ("wasmline.cli.jobs:stop", "Stop a job's run at its next safe point."),
    "delete": ("wasmline.cli.jobs:delete", "Forget a job that does not run."),
    "progress": ("wasmline.cli.progress:progress", "Show and set where the next run of a job continues."),
    "withdraw": ("wasmline.cli.jobs:withdraw", "End a job's current round of leases; the next begins at once."),
    "models": ("wasmline.cli.models:models", "List, compare, compile, rebuild and roll back models."),
    "modules": ("wasmline.cli.modules:modules", "List and prune the modules on a cluster."),
    "local": ("wasmline.cli.local:local", "Start and stop a real Kafka on this machine."),
}
"""The module and the description of each command: enough for ``--help``."""

LOGGING_REQUESTS = ("botocore", "aiobotocore")
"""Libraries that log requests with their signatures and session tokens, which are credentials: not below INFO."""


class Failure(click.ClickException):
    """An error of Wasmline or of the system as one line on stderr, after its log or diff."""

    def __init__(self, error: WasmlineError | OSError) -> None:
        super().__init__(str(error))
        self._has_lines = not isinstance(error, ModuleError | RegistryError)  # they quote names of files
        self._details = ""
        if isinstance(error, BuildFailed):
            self._details = error.log
        elif isinstance(error, SampleMismatch):
            self._details = error.diff

    def show(self, file: object = None) -> None:

        if self._details:
            click.echo(printable(self._details.rstrip(), lines=True), err=True)
        click.echo(f"wasmline: {printable(self.message, lines=self._has_lines)}", err=True)


class TerminalFormatter(logging.Formatter):
    """Log lines without control characters, which may come from a record, a module or a registry.

    A message is one line, unless it has ``has_lines``; a traceback keeps its lines.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record), lines=getattr(record, "has_lines", False))

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)


class Commands(click.Group):
    """The commands of the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except (WasmlineError, OSError) as error:
            if isinstance(error, BrokenPipeError):  # a reader that closes early is not an error
                raise
            if ctx.params["debug"]:
                click.echo(printable(traceback.format_exc(), lines=True), err=True)
            raise Failure(error) from error
        except ModuleNotFoundError as error:
            if (missing := missing_extra(error)) is None:
                raise
            raise Failure(missing) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="wasmline")
@click.option("--debug", is_flag=True, help="Log everything but requests with credentials, and show tracebacks.")
def main(debug: bool) -> None:
    """Build, version, deploy and run WebAssembly transforms on Kafka.

    Exit status: 0 done, 1 an error, 2 wrong usage; `run` ends with 3 if records failed, `dead-letters redrive` if some
    stay pending or failed again, `models list --check` and `models show --check` if a champion does not serve.
    """
    if debug:
        handler = logging.StreamHandler()
        handler.setFormatter(TerminalFormatter("%(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(handlers=[handler], level=logging.DEBUG)
        for library in LOGGING_REQUESTS:
            logging.getLogger(library).setLevel(logging.INFO)
    elif logging.lastResort:  # shows warnings on stderr
        logging.lastResort.setFormatter(TerminalFormatter())
