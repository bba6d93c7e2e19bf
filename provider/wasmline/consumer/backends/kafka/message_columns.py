"""Records between the client's messages and columns, where no compiled code copies them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from wasmline.consumer.backends.kafka.group_source import headers_of
from wasmline.consumer.columns import OutputColumns, RecordColumns
from wasmline.kafka.producer import ANY_PARTITION
from wasmline.record_batches import header_pairs, record_batch
from wasmline.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from wasmline.kafka.compiled_columns import CompiledColumns


def columns_by_partition(messages: Iterable[Message]) -> list[RecordColumns]:
    """Return records as columns, those of a partition in their order."""
    found: dict[tuple[str | None, int | None], list[Any]] = defaultdict(list)
    for message in messages:
        found[message.topic(), message.partition()].append(message)
    return [
        RecordColumns(
            TopicPartition(topic or "", partition or 0),
            record_batch(
                keys=[each.key() for each in of_partition],
                values=[each.value() for each in of_partition],
                headers=[headers_of(each) for each in of_partition],
                timestamps=[each.timestamp()[1] for each in of_partition],
                partitions=[partition or 0] * len(of_partition),
                offsets=[each.offset() for each in of_partition],
            ),
        )
        for (topic, partition), of_partition in found.items()
    ]


class OutputWriter(Protocol):
    """Passes the outputs of one call to a client, in their order and as its queue has capacity."""

    def write(self, client: Producer) -> bool:
        """Pass outputs to the client until its queue is full; return whether it has all of them."""

    def answers(self) -> tuple[int, list[tuple[int, KafkaError]]]:
        """Return the number of outputs whose delivery is not known, and the failed ones since the last call.

        An output is its place.
        """


def output_writer(outputs: OutputColumns, compiled: CompiledColumns | None) -> OutputWriter:
    """Return a writer of some outputs, to clients with the ``producer_settings`` of ``compiled``."""
    if compiled is None:
        return MessageWriter(outputs)
    from wasmline.kafka.compiled_columns import CompiledWriter

    return CompiledWriter(compiled, outputs.batch, outputs.topics)


class MessageWriter:
    """Passes outputs one by one. See OutputWriter for its contract."""

    def __init__(self, outputs: OutputColumns) -> None:
        columns = outputs.batch
        self._unanswered = len(outputs)
        self._failed: list[tuple[int, KafkaError]] = []
        self._rows = zip(
            range(len(outputs)),
            [outputs.topics[number] for number in columns.column("output").to_pylist()],
            columns.column("value").to_pylist(),
            columns.column("key").to_pylist(),
            header_pairs(columns.column("headers")),
            columns.column("timestamp").to_pylist(),
            strict=True,
        )
        self._next = next(self._rows, None)

    def write(self, client: Producer) -> bool:
        produce = client.produce
        while self._next is not None:
            number, topic, value, key, headers, timestamp = self._next
            try:
                produce(
                    topic,
                    value=value,
                    key=key,
                    partition=ANY_PARTITION,
                    on_delivery=partial(self._take_answer, number),
                    timestamp=timestamp,
                    headers=list(headers),
                )
            except BufferError:
                return False
            except KafkaException as error:
                self._take_answer(number, error.args[0], None)
            self._next = next(self._rows, None)
        return True

    def answers(self) -> tuple[int, list[tuple[int, KafkaError]]]:
        failed, self._failed = self._failed, []
        return self._unanswered, failed

    def _take_answer(self, number: int, error: KafkaError | None, _: Message | None) -> None:
        """Take the answer to one output: a callback of the client."""
        self._unanswered -= 1
        if error is not None:
            self._failed.append((number, error))
