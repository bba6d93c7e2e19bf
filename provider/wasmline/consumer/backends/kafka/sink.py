"""Writes outputs at least once, with librdkafka."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from wasmline.consumer.backends.kafka.producer_batch_limiter import ProducerBatchLimiter
from wasmline.consumer.records import Output
from wasmline.consumer.runtime.failure_log import forget_frames
from wasmline.errors import OutputRefused, WasmlineError
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.error_mapping import translate_errors
from wasmline.kafka.producer import (
    ANY_PARTITION,
    BACK_PRESSURE_WAIT_S,
    BATCH_ERROR_CODES,
    RECORD_ERROR_CODES,
    fatal_errors,
    producer,
    reason_of,
    try_enqueue,
    unusable_topic_errors,
)
from wasmline.kafka.reconnecting_clients import ReconnectingProducer

if TYPE_CHECKING:
    from wasmline.consumer.columns import OutputColumns
    from wasmline.kafka.compiled_columns import CompiledColumns
    from wasmline.kafka.message_columns import OutputWriter

ColumnAnswer = Callable[[int, int, Exception | None], None]
"""See Sink.write_columns."""


def produce(client: Producer, output: Output, on_delivery: Callable[[KafkaError | None, Message], None]) -> None:
    """Pass an output to the client, and wait while its queue is full. Raises OutputRefused, KafkaException."""
    while not _offer(client, output, on_delivery):
        client.poll(BACK_PRESSURE_WAIT_S)


def _offer(client: Producer, output: Output, on_delivery: Callable[[KafkaError | None, Message], None]) -> bool:
    """Pass an output to the client; return whether its queue had capacity. Raises as ``produce`` does."""
    try:
        record = (output.key, output.value, list(output.headers), output.timestamp)
        return try_enqueue(
            client, output.topic, record, on_delivery, ANY_PARTITION if output.partition is None else output.partition
        )
    except (TypeError, ValueError) as error:
        raise OutputRefused(f"the handler's output cannot be a record of {output.topic}: {error}") from error
    except KafkaException as error:
        if error.args[0].code() in RECORD_ERROR_CODES and not error.args[0].txn_requires_abort():
            raise output_refused_error(output.topic, error.args[0]) from error
        raise


def output_refused_error(topic: str, error: KafkaError) -> OutputRefused:
    """Return the error for a code of RECORD_ERROR_CODES."""
    return OutputRefused(f"{topic} rejects an output: {error.str()}")


def delivery_error(config: KafkaConfig, topic: str, error: KafkaError, *, with_others: bool = False) -> WasmlineError:
    """Return the error of an output of ``topic`` that was in a batch by itself or ``with_others``."""
    if error.code() in RECORD_ERROR_CODES:
        refused = output_refused_error(topic, error)
        refused.with_others = with_others
        return refused
    servers = config.bootstrap_servers
    try:
        with translate_errors(servers, unusable_topic_errors(topic, servers)):
            raise KafkaException(error)
    except WasmlineError as ours:
        forget_frames(ours)  # those of the callers, and so all outputs
        return ours


BATCH_SPACE_WAIT_S = 0.05
"""Seconds that the control loop waits for capacity in the current batch."""


class KafkaSink:
    """An idempotent producer, created at the first write. See Sink for its contract.

    Outputs that exceed the client's queue wait here, in their order: the control loop must not wait for it.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self.compiled: CompiledColumns | None = None
        """Writes outputs in columns; None: they become messages."""
        self._batches = ProducerBatchLimiter(config)
        self._waiting: dict[str, int] = {}
        self._column_writes: list[_ColumnWrite] = []
        """Outputs of calls whose delivery is not known."""
        self._backlog: deque[Callable[[], bool]] = deque()
        """Attempts to write what waits; each returns whether the client had capacity."""
        self._is_alone = False
        """Whether the last output needs a batch of its own."""

    @property
    def is_full(self) -> bool:
        return bool(self._backlog)

    @cached_property
    def _producer(self) -> ReconnectingProducer:
        return producer(self._config, **(self.compiled.producer_settings if self.compiled else {}))

    def write(self, output: Output, done: Callable[[Exception | None], None], *, alone: bool = False) -> None:
        if self._backlog or not self._try_send(output, done, alone):
            self._backlog.append(partial(self._try_send, output, done, alone))

    def write_columns(self, outputs: OutputColumns, answer: ColumnAnswer) -> None:
        try:
            is_unlimited = self._batches.limits_none(outputs)
        except WasmlineError:
            is_unlimited = False  # each output has the error
        if is_unlimited:
            from wasmline.kafka.message_columns import output_writer

            writer = output_writer(outputs.batch, outputs.topics, self.compiled)
            self._column_writes.append(_ColumnWrite(outputs, writer, answer, self._rejection))
            attempt = partial(self._try_send_columns, writer)
            if self._backlog or not attempt():
                self._backlog.append(attempt)
            return
        for place, output in enumerate(outputs.outputs()):
            self.write(output, partial(answer, 1, place))

    def _try_send_columns(self, writer: OutputWriter) -> bool:
        """Pass the outputs of a call to the client; return whether it had capacity for all of them."""
        if self._is_alone and self._flush(BATCH_SPACE_WAIT_S):
            return False
        self._is_alone = False
        return writer.write(self._producer)

    def _try_send(self, output: Output, done: Callable[[Exception | None], None], alone: bool) -> bool:
        """Pass an output to the client; return whether it had capacity. One that is alone needs an empty queue."""

        delivered = partial(self._take_answer, output, done, alone)
        try:
            if (alone or self._is_alone) and self._flush(BATCH_SPACE_WAIT_S):
                return False
            self._is_alone = alone
            return self._batches.flush_if_full(self._producer, output, self._waiting, BATCH_SPACE_WAIT_S) and _offer(
                self._producer, output, delivered
            )
        except WasmlineError as error:
            done(error)
        except KafkaException as error:
            done(self._failure(output, error.args[0]))
        return True

    def _take_answer(
        self,
        output: Output,
        done: Callable[[Exception | None], None],
        alone: bool,
        error: KafkaError | None,
        _: Message,
    ) -> None:
        """Take the answer to one output: a callback of the client."""
        done(None if error is None else self._rejection(output, error, alone=alone))

    def _rejection(self, output: Output, error: KafkaError, *, alone: bool = False) -> WasmlineError:
        """Return the error of an output that was not delivered."""
        is_of_batch = self._batches.note_rejection(output, error) or error.code() in BATCH_ERROR_CODES
        return self._failure(output, error, with_others=is_of_batch and not alone)

    def _failure(self, output: Output, error: KafkaError, *, with_others: bool = False) -> WasmlineError:
        error = reason_of(self._producer, error)
        missing = self._batches.missing_partition(output, error)
        return missing or delivery_error(self._config, output.topic, error, with_others=with_others)

    def poll(self) -> None:
        if "_producer" in vars(self):
            self._serve(self._producer.poll, 0)
            self._answer_columns()
            self._send_backlog()

    def flush(self, timeout: float) -> int:
        if "_producer" not in vars(self):
            return 0
        deadline = time.monotonic() + timeout
        while True:
            left = self._flush(max(0.0, deadline - time.monotonic())) + len(self._backlog)
            self._answer_columns()
            self._send_backlog()
            if not left or time.monotonic() >= deadline:
                return left

    def _flush(self, timeout: float) -> int:
        """Wait for answers; return the number of outputs without one."""
        return self._serve(self._producer.flush, timeout)

    def _serve(self, call: Callable[[float], int], timeout: float) -> int:
        """Make a call of the client that takes answers. Raises the error that has ended the client."""
        try:
            return call(timeout)
        except KafkaException:
            with translate_errors(self._config.bootstrap_servers), fatal_errors(self._producer):
                raise

    def _send_backlog(self) -> None:
        while self._backlog and self._backlog[0]():
            self._backlog.popleft()

    def _answer_columns(self) -> None:
        self._column_writes = [write for write in self._column_writes if not write.answer()]

    def close(self) -> None:
        self._backlog.clear()
        self._column_writes.clear()
        if "_producer" in vars(self):
            with translate_errors(self._config.bootstrap_servers):
                try:
                    self._producer.poll(0)  # the error that has ended it, if no call has raised that
                finally:
                    self._producer.discard()
                    self._producer.close()


class _ColumnWrite:
    """Passes on the deliveries of the outputs of one call: failures at once, the number of the others at the end."""

    __slots__ = ("_answer", "_delivered", "_error_of", "_outputs", "_writer")

    def __init__(
        self,
        outputs: OutputColumns,
        writer: OutputWriter,
        answer: ColumnAnswer,
        error_of: Callable[[Output, KafkaError], WasmlineError],
    ) -> None:
        self._outputs = outputs
        self._writer = writer
        self._answer = answer
        self._error_of = error_of
        self._delivered = len(outputs)

    def answer(self) -> bool:
        """Pass on what is known now; return whether that is all."""
        unanswered, failed = self._writer.answers()
        for place, error in failed:
            self._answer(1, place, self._error_of(self._outputs.output(place), error))
        self._delivered -= len(failed)
        if not unanswered and self._delivered:
            self._answer(self._delivered, 0, None)
        return not unanswered
