"""Options and arguments that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click

from wasmline.build.memory_size import parse_size
from wasmline.cli.schema import SchemaFile
from wasmline.wasm.transform_context import Clock

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

Command = TypeVar("Command", bound=Callable[..., Any])

REGISTRY_VARIABLE = "WASMLINE_REGISTRY"
MODELS_VARIABLE = "WASMLINE_MODELS"


def default_registry() -> str:
    """Return the default folder of the registry."""
    return _default_folder("registry", REGISTRY_VARIABLE)


def default_models() -> str:
    """Return the default folder of the model registry."""
    return _default_folder("models", MODELS_VARIABLE)


def _default_folder(name: str, variable: str) -> str:
    try:
        return str(Path.home() / ".local" / "share" / "wasmline" / name)
    except RuntimeError as error:
        raise click.UsageError(f"no home folder is known: set a registry by --{name} or ${variable}") from error


class MemorySize(click.ParamType[int]):
    """An amount of memory such as 64MiB, as bytes."""

    name = "size"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Variable(click.ParamType[tuple[str, str]]):
    """``KEY=VALUE``."""

    name = "k=v"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not key or not equals or not text:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key, text


def folder_argument(command: Command) -> Command:
    """Add the argument of a project's folder, by default the current one."""
    return click.argument("folder", type=click.Path(path_type=Path), default=Path())(command)


def build_scripts_option(command: Command) -> Command:
    """Add the option that allows code of the project, and of its dependencies, to run on this machine."""
    return click.option(
        "--allow-build-scripts",
        is_flag=True,
        envvar="WASMLINE_ALLOW_BUILD_SCRIPTS",
        help="Rust: run the build scripts and macros of the project and of its dependencies on this machine.",
    )(command)


def clock_option(command: Command) -> Command:
    """Add the option of the guest's clock."""
    return click.option(
        "--clock",
        type=click.Choice(get_args(Clock)),
        default="wasmline",
        show_default=True,
        help="Rule of the guest's monotonic clock; redpanda: only a millisecond per reading.",
    )(command)


def schemas_option(command: Command) -> Command:
    """Add the option of schemas in the guest's schema registry."""
    return click.option(
        "--schema",
        "schemas",
        type=SchemaFile(),
        multiple=True,
        metavar="ID=FILE",
        help="A schema of the guest's schema registry; repeatable. ID:SUBJECT:VERSION=FILE names its"
        " subject too; FILE ends in .avsc, .proto or .json, or begins with avro:, protobuf: or json:.",
    )(command)


def provenance_option(command: Command) -> Command:
    """Add the option of the outputs' provenance header."""
    return click.option(
        "--provenance/--no-provenance",
        default=True,
        show_default=True,
        help="Add a header to each output of a transform that names its input record, module and model.",
    )(command)


def kafka_option(command: Command) -> Command:
    """Add the option of the cluster's address and client settings."""
    return click.option(
        "-X",
        "settings",
        type=Variable(),
        multiple=True,
        metavar="KEY=VALUE",
        help="A librdkafka setting, such as bootstrap.servers=host:9092; repeatable. Default: $WASMLINE_KAFKA_CONFIG. "
        "Secrets belong there or in $WASMLINE_KAFKA_CONFIG_FILE, not on a command line.",
    )(command)


def kafka_config(settings: tuple[tuple[str, str], ...]) -> KafkaConfig:
    """Return the cluster of ``kafka_option``, else of the environment."""
    from wasmline.kafka import KafkaConfig

    return KafkaConfig.of(dict(settings)) if settings else KafkaConfig.from_environment()


def kafka_is_configured() -> bool:
    """Whether the environment names a cluster."""
    from wasmline.kafka.config import FILE_VARIABLE, VARIABLE

    return any(os.environ.get(variable) for variable in (VARIABLE, FILE_VARIABLE))


def guest_options(command: Command) -> Command:
    """Add the options of a guest's context and limits: the arguments of ``RunnableTransform.adjusted``."""
    options = [
        click.option(
            "--env", type=Variable(), multiple=True, metavar="K=V", help="A variable of the guest; repeatable."
        ),
        click.option(
            "--output-topic",
            "output_topics",
            multiple=True,
            metavar="NAME",
            help="Instead of the declared ones; repeatable.",
        ),
        click.option("--memory", type=MemorySize(), metavar="SIZE", help="The guest's memory limit, such as 64MiB."),
        clock_option,
        schemas_option,
        click.option("--timeout-ms", type=click.IntRange(min=1), metavar="MS", help="CPU time limit per record."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def registry_option(command: Command) -> Command:
    """Add the option of the registry's location."""
    return click.option(
        "--registry",
        metavar="URL",
        envvar=REGISTRY_VARIABLE,
        default=default_registry,
        show_default=f"${REGISTRY_VARIABLE}, else ~/.local/share/wasmline/registry",
        help="The registry: a folder or an fsspec URL such as s3://bucket/registry.",
    )(command)


def models_option(command: Command) -> Command:
    """Add the option of the model registry's location."""
    return click.option(
        "--models",
        metavar="URL",
        envvar=MODELS_VARIABLE,
        default=default_models,
        show_default=f"${MODELS_VARIABLE}, else ~/.local/share/wasmline/models",
        help="The registry of models: a folder or an fsspec URL such as s3://bucket/models.",
    )(command)


def record_arguments(command: Command) -> Command:
    """Add the arguments of one record: its topic, its partition and its offset."""
    for argument in (
        click.argument("offset", type=click.IntRange(min=0, max=2**63 - 1)),
        click.argument("partition", type=click.IntRange(min=0, max=2**31 - 1)),
        click.argument("topic"),
    ):
        command = argument(command)
    return command


def yes_option(command: Command) -> Command:
    """Add the option not to ask at the terminal."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)


def reason_option(command: Command) -> Command:
    """Add the option of the reason that the history keeps."""
    return click.option("--reason", default="", help="Why; kept in the history.")(command)


def json_option(command: Command) -> Command:
    """Add the option of output for machines."""
    return click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")(command)


def transform_option(command: Command) -> Command:
    """Add the option of the transform that a model is compiled to."""
    return click.option("--transform", metavar="NAME", help="The model's transform; default: the model's name.")(
        command
    )
