"""Writing outputs at least once, with librdkafka."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import cached_property

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from wasmline.consumer.backends.kafka.topic_limits import ProducerBatchLimiter
from wasmline.consumer.records import Output
from wasmline.errors import OutputRefused, WasmlineError
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.error_mapping import translate_errors
from wasmline.kafka.producer import ANY_PARTITION, BACK_PRESSURE_WAIT_S, missing_topic, producer, try_enqueue

BATCH_ERROR_CODES = (KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD)
"""What all records of a batch may be refused with because of one of them."""

RECORD_ERROR_CODES = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    *BATCH_ERROR_CODES,
)
"""What one record fails with, however often it is written."""


def produce(client: Producer, output: Output, on_delivery: Callable[[KafkaError | None, Message], None]) -> None:
    """Hand an output to the client, and wait while its queue is full. Raises OutputRefused, KafkaException."""
    while not _offer(client, output, on_delivery):
        client.poll(BACK_PRESSURE_WAIT_S)


def _offer(client: Producer, output: Output, on_delivery: Callable[[KafkaError | None, Message], None]) -> bool:
    """Hand an output to the client, and say whether its queue had room. Raises as ``produce`` does."""
    try:
        record = (output.key, output.value, list(output.headers), output.timestamp)
        return try_enqueue(
            client, output.topic, record, on_delivery, ANY_PARTITION if output.partition is None else output.partition
        )
    except (TypeError, ValueError) as error:
        raise OutputRefused(f"what the handler returned cannot be a record of {output.topic}: {error}") from error
    except KafkaException as error:
        if error.args[0].code() in RECORD_ERROR_CODES and not error.args[0].txn_requires_abort():
            raise refusal(output.topic, error.args[0]) from error
        raise


def refusal(topic: str, error: KafkaError) -> OutputRefused:
    """Return our error for a code of REFUSALS."""
    return OutputRefused(f"{topic} refuses an output: {error.str()}")


def delivery_failure(config: KafkaConfig, topic: str, error: KafkaError, *, with_others: bool = False) -> WasmlineError:
    """Return our error for what became of an output of ``topic``, which was in a batch by itself or ``with_others``."""
    if error.code() in RECORD_ERROR_CODES:
        refused = refusal(topic, error)
        refused.with_others = with_others
        return refused
    servers = config.bootstrap_servers
    try:
        with translate_errors(servers, missing_topic(topic, servers)):
            raise KafkaException(error)
    except WasmlineError as ours:
        return ours


BATCH_SPACE_WAIT_S = 0.05
"""Seconds that the owner waits for room in a batch that is under way."""


class KafkaSink:
    """An idempotent producer, made at the first write. See Sink for what its methods promise.

    Outputs that the client has no room for wait here, in their order: the owner has more to do than to wait for it.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self._batches = ProducerBatchLimiter(config)
        self._waiting: dict[str, int] = {}
        self._backlog: deque[tuple[Output, Callable[[Exception | None], None], bool]] = deque()
        self._is_alone = False
        """Whether what was handed over last is to be in a batch by itself."""

    @property
    def is_full(self) -> bool:
        return bool(self._backlog)

    @cached_property
    def _producer(self) -> Producer:
        return producer(self._config)

    def write(self, output: Output, done: Callable[[Exception | None], None], *, alone: bool = False) -> None:
        if self._backlog or not self._hand_over(output, done, alone):
            self._backlog.append((output, done, alone))

    def _hand_over(self, output: Output, done: Callable[[Exception | None], None], alone: bool) -> bool:
        """Hand an output to the client, and say whether it had room for it; one that is alone needs all of it."""

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                done(None)
                return
            is_of_batch = self._batches.refused(output, error) or error.code() in BATCH_ERROR_CODES
            done(self._failure(output, error, with_others=is_of_batch and not alone))

        try:
            if (alone or self._is_alone) and self._producer.flush(BATCH_SPACE_WAIT_S):
                return False
            self._is_alone = alone
            return self._batches.make_room(self._producer, output, self._waiting, BATCH_SPACE_WAIT_S) and _offer(
                self._producer, output, delivered
            )
        except WasmlineError as error:
            done(error)
        except KafkaException as error:
            done(self._failure(output, error.args[0]))
        return True

    def _failure(self, output: Output, error: KafkaError, *, with_others: bool = False) -> WasmlineError:
        misplaced = self._batches.misplaced(output, error)
        return misplaced or delivery_failure(self._config, output.topic, error, with_others=with_others)

    def poll(self) -> None:
        if "_producer" in vars(self):
            self._producer.poll(0)
            self._go_on()

    def flush(self, timeout: float) -> int:
        if "_producer" not in vars(self):
            return 0
        deadline = time.monotonic() + timeout
        while True:
            self._producer.flush(max(0.0, deadline - time.monotonic()))
            self._go_on()
            left = len(self._producer) + len(self._backlog)
            if not left or time.monotonic() >= deadline:
                return left

    def _go_on(self) -> None:
        while self._backlog and self._hand_over(*self._backlog[0]):
            self._backlog.popleft()

    def close(self) -> None:
        self._backlog.clear()
        if "_producer" in vars(self):
            self._producer.purge()
            self._producer.close()
