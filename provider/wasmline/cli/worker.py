"""``wasmline worker``: runs the key-parallel consumer."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import click
import pyarrow as pa

from wasmline.cli.consumer_runner import run_until_signalled
from wasmline.cli.handler_option import load_handler
from wasmline.cli.options import guest_options, kafka_option, provenance_option, registry_option
from wasmline.cli.runnable import RunnableTransform, resolve_transform
from wasmline.consumer import ConsumerHealth, ConsumerOptions, Delivery, HandlerFactory, ParallelConsumer, RetryPolicy
from wasmline.consumer.handler_adapters import Handler
from wasmline.control import DeploymentSpec, require_topics
from wasmline.digests import digest_of
from wasmline.garbage_collection import collect_rarely
from wasmline.job_offsets.catch_up import GroupCatchUpTarget
from wasmline.kafka import KafkaConfig, Topics
from wasmline.pipeline.transform_handler import BUFFERED_RECORDS, MAX_CALL_RECORDS, TransformHandler

UNPUBLISHED = "unpublished"
"""The version of an unpublished module."""

EARLIEST = "earliest"

GUEST = ("env", "output_topics", "memory", "clock", "schemas", "timeout_ms")
"""Options that apply only to a transform: the names of ``guest_options``."""


@click.command()
@click.argument("topics", nargs=-1)
@click.option("--group", "group_id", required=True, help="The consumer group, which keeps the progress.")
@click.option("--handler", "function", metavar="MODULE:FUNCTION", help="A function of a record, sync or async.")
@click.option("--module", "transform", metavar="MODULE|FOLDER|NAME@VERSION", help="A transform, as `run` takes it.")
@click.option(
    "--ordering",
    type=click.Choice(["key", "partition", "unordered"]),
    default="key",
    show_default=True,
    help="Which records wait for each other.",
)
@click.option(
    "--null-keys",
    type=click.Choice(["serial", "unordered"]),
    default="serial",
    show_default=True,
    help="How a partition's records without a key are ordered.",
)
@click.option(
    "--max-concurrency",
    type=click.IntRange(min=1),
    help="Calls at a time.  [default: 16; of a module, one for each processor]",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    help=f"Give the handler lists of up to so many records.  [default: one record; a module gets {MAX_CALL_RECORDS:,}]",
)
@click.option(
    "--delivery",
    type=click.Choice(["at_least_once", "exactly_once"]),
    default="at_least_once",
    show_default=True,
    help="exactly_once: outputs and progress share transactions.",
)
@click.option("--dead-letter-topic", help="The topic of dead-lettered records; without one the worker ends instead.")
@click.option(
    "--max-attempts",
    type=click.IntRange(min=1),
    help="Attempts before a record is dead-lettered.  [default: unlimited]",
)
@click.option("--retry-delay-ms", type=click.IntRange(min=0), default=1_000, show_default=True)
@click.option(
    "--handler-timeout-ms", type=click.IntRange(min=1), help="Maximum duration of a call.  [default: forever]"
)
@click.option("--commit-interval-ms", type=click.IntRange(min=1), help="[default: 5000; 100 in transactions]")
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    help="End if retention removed records before they were read, or count them.  [default: end]",
)
@click.option("--max-failure-share", type=float, default=0.5, show_default=True, help="End if more of a window fail.")
@provenance_option
@click.option("--stop-at-end", is_flag=True, help="End once the group has done all records present at the start.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve metrics for Prometheus at this port.")
@guest_options
@registry_option
@kafka_option
def worker(
    topics: tuple[str, ...],
    function: str | None,
    transform: str | None,
    max_failure_share: float,
    provenance: bool,
    stop_at_end: bool,
    metrics_port: int | None,
    registry: str,
    settings: tuple[tuple[str, str], ...],
    **chosen: Any,
) -> None:
    """Run a function or a transform on the records of TOPICS, those of one key in order, many keys at a time.

    One of --handler and --module is required. The options from --env to --timeout-ms, --max-failure-share and
    --no-provenance are for modules, which read one topic: by default the declared one.

    SIGTERM and Ctrl-C drain the worker; a second one ends it at once, as far as its handlers return. Unfinished records
    are processed by the next worker of the group.
    """
    guest = {name: chosen.pop(name) for name in GUEST}
    if (function is None) == (transform is None):
        raise click.UsageError("exactly one of --handler and --module is required")
    config = KafkaConfig.completed(dict(settings))
    handler: Handler | HandlerFactory
    if transform is not None:
        handler, options = _transform(
            config, topics, chosen, resolve_transform(transform, registry), guest, max_failure_share, provenance
        )
    elif any(value for name, value in guest.items() if name != "clock"):
        raise click.UsageError("--env, --output-topic, --memory, --schema and --timeout-ms are for --module")
    elif function is not None:
        handler, options = load_handler(function), _options(config, topics, chosen)
    if stop_at_end and any(topic.startswith("^") for topic in options.topics):
        raise click.UsageError("--stop-at-end needs the topics by name")
    if stop_at_end and config.properties.get("auto.offset.reset", EARLIEST) != EARLIEST:
        raise click.UsageError(f"--stop-at-end needs auto.offset.reset={EARLIEST}: skipped records are never done")
    ended: Callable[[ConsumerHealth], bool] | None = None
    if stop_at_end:
        # Exactly once, records that are done and not committed have no outputs yet.
        exact = options.delivery is Delivery.EXACTLY_ONCE
        ended = GroupCatchUpTarget(config, options.group_id, options.topics, committed=exact).reached
    consumer = ParallelConsumer(options)
    collect_rarely()
    with _metrics(consumer, metrics_port):
        run_until_signalled(consumer, handler, ended)


def _transform(
    config: KafkaConfig,
    topics: tuple[str, ...],
    chosen: dict[str, Any],
    trial: RunnableTransform,
    guest: dict[str, Any],
    max_failure_share: float,
    provenance: bool,
) -> tuple[TransformHandler, ConsumerOptions]:
    if len(topics) > 1:
        raise click.UsageError("a transform reads exactly one topic")
    if not trial.declared and not (topics and guest["output_topics"]):
        raise click.UsageError("a module by itself declares no topics: name the one to read, and each --output-topic")
    trial = trial.adjusted(**guest)
    spec = DeploymentSpec(
        name=trial.context.name,
        version=trial.version or UNPUBLISHED,
        digest=digest_of(trial.wasm),
        input_topic=topics[0] if topics else trial.context.input_topic,
        output_topics=trial.context.output_topics,
        dead_letter_topic=chosen["dead_letter_topic"] or trial.dead_letter_topic,
        env=dict(trial.context.env),
        memory_bytes=trial.limits.memory_bytes,
        cpu_ms_per_record=trial.limits.cpu_ms_per_record,
        max_failure_share=max_failure_share,
        schemas=trial.context.schemas,
        clock=trial.context.clock,
        model=trial.model,
        provenance=provenance,
    )
    require_topics(config, spec)
    # Arrow's own allocator gives pages back and takes them again with each call: a tenth of the CPU time.
    pa.set_memory_pool(pa.system_memory_pool())
    handler = TransformHandler(spec, trial.wasm, Topics(config).record_limits(spec.output_topics))
    chosen["dead_letter_topic"] = spec.dead_letter_topic
    chosen["dead_letter_headers"] = handler.origin
    chosen["batch_size"] = chosen["batch_size"] or MAX_CALL_RECORDS
    chosen["max_concurrency"] = chosen["max_concurrency"] or os.cpu_count()
    chosen["buffer_records"] = BUFFERED_RECORDS
    settings = {"compression.type": trial.compression, **config.properties}
    return handler, _options(KafkaConfig(settings), (spec.input_topic,), chosen)


def _options(config: KafkaConfig, topics: tuple[str, ...], chosen: dict[str, Any]) -> ConsumerOptions:
    if not topics:
        raise click.UsageError("name the topics to read")
    if letters := chosen["dead_letter_topic"]:
        Topics(config).describe(letters)
    retry = RetryPolicy(delay_ms=chosen.pop("retry_delay_ms"), max_attempts=chosen.pop("max_attempts"))
    fields = {name: value for name, value in chosen.items() if value is not None}
    return ConsumerOptions(topics=topics, retry=retry, kafka=config.properties, **fields)


def _metrics(consumer: ParallelConsumer, port: int | None) -> AbstractContextManager[object]:
    if port is None:
        return nullcontext()
    try:
        from wasmline.consumer.prometheus import serve
    except ModuleNotFoundError as error:
        raise click.UsageError("--metrics-port needs prometheus-client: pip install 'wasmline[metrics]'") from error
    return serve(consumer, port)
