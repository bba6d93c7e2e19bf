"""Writing outputs at least once, with librdkafka."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from wasmline.consumer.confluent.batches import Batches
from wasmline.consumer.records import Output
from wasmline.errors import OutputRefused, WasmlineError
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.failures import mapped
from wasmline.kafka.producer import ANY, enqueue, missing_topic, producer

REFUSALS = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_RECORD,
)
"""What one record fails with, however often it is written."""


def produce(client: Producer, output: Output, on_delivery: Callable[[KafkaError | None, Message], None]) -> None:
    """Hand an output to the client, and wait while its queue is full. Raises OutputRefused, KafkaException."""
    try:
        record = (output.key, output.value, list(output.headers), output.timestamp)
        enqueue(client, output.topic, record, on_delivery, ANY if output.partition is None else output.partition)
    except (TypeError, ValueError) as error:
        raise OutputRefused(f"what the handler returned cannot be a record of {output.topic}: {error}") from error
    except KafkaException as error:
        if error.args[0].code() in REFUSALS:
            raise refusal(output.topic, error.args[0]) from error
        raise


def refusal(topic: str, error: KafkaError) -> OutputRefused:
    """Return our error for a code of REFUSALS."""
    return OutputRefused(f"{topic} refuses an output: {error.str()}")


def failure(config: KafkaConfig, topic: str, error: KafkaError) -> WasmlineError:
    """Return our error for what became of an output of ``topic``."""
    if error.code() in REFUSALS:
        return refusal(topic, error)
    servers = config.bootstrap_servers
    try:
        with mapped(servers, missing_topic(topic, servers)):
            raise KafkaException(error)
    except WasmlineError as ours:
        return ours


class ConfluentSink:
    """An idempotent producer, made at the first write. See Sink for what its methods promise."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._batches = Batches(config)
        self._waiting: dict[str, int] = {}

    @cached_property
    def _producer(self) -> Producer:
        return producer(self._config)

    def write(self, output: Output, done: Callable[[Exception | None], None]) -> None:
        def delivered(error: KafkaError | None, _: Message) -> None:
            done(None if error is None else failure(self._config, output.topic, error))

        try:
            self._batches.make_room(self._producer, output, self._waiting)
            produce(self._producer, output, delivered)
        except WasmlineError as error:
            done(error)
        except KafkaException as error:
            done(failure(self._config, output.topic, error.args[0]))

    def poll(self) -> None:
        if "_producer" in vars(self):
            self._producer.poll(0)

    def flush(self, timeout: float) -> int:
        return int(self._producer.flush(timeout)) if "_producer" in vars(self) else 0

    def close(self) -> None:
        if "_producer" in vars(self):
            self._producer.purge()
            self._producer.close()
