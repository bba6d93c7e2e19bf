"""Records between the client's messages and columns, where no compiled code copies them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from wasmline.kafka.compiled_columns import CompiledColumns, CompiledWriter, PartitionColumns
from wasmline.kafka.message_headers import headers_of
from wasmline.kafka.producer import ANY_PARTITION, BACK_PRESSURE_WAIT_S
from wasmline.record_batches import header_pairs, record_batch
from wasmline.topic_partitions import TopicPartition


def columns_by_partition(messages: Iterable[Message]) -> list[PartitionColumns]:
    """Return records as columns, those of a partition in their order."""
    found: dict[tuple[str | None, int | None], list[Any]] = defaultdict(list)
    for message in messages:
        found[message.topic(), message.partition()].append(message)
    return [
        PartitionColumns(
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


def output_writer(outputs: pa.RecordBatch, topics: Sequence[str], compiled: CompiledColumns | None) -> OutputWriter:
    """Return a writer of some outputs, to clients with the ``producer_settings`` of ``compiled``.

    outputs: a batch of TIMED_OUTPUT_SCHEMA, whose column ``output`` is an index into ``topics``.
    """
    return MessageWriter(outputs, topics) if compiled is None else CompiledWriter(compiled, outputs, topics)


def write_outputs(
    client: Producer,
    outputs: pa.RecordBatch,
    topics: Sequence[str],
    compiled: CompiledColumns | None,
    *,
    reports: bool = True,
) -> OutputWriter:
    """Pass all outputs to a client; waits while its queue is full. Raises KafkaException for one that it refuses.

    ``reports``: see MessageWriter.
    """
    writer: OutputWriter
    if compiled is None:
        writer = MessageWriter(outputs, topics, reports=reports)
    else:
        writer = CompiledWriter(compiled, outputs, topics)
    while not writer.write(client):
        client.poll(BACK_PRESSURE_WAIT_S)
    client.poll(0)
    for _, error in writer.answers()[1]:
        raise KafkaException(error)
    return writer


class MessageWriter:
    """Passes outputs one by one. See OutputWriter for its contract.

    Without ``reports`` it has no callback that the client calls, and counts none but the outputs that it refuses.
    """

    def __init__(self, outputs: pa.RecordBatch, topics: Sequence[str], *, reports: bool = True) -> None:
        self._reports = reports
        self._unanswered = outputs.num_rows if reports else 0
        self._failed: list[tuple[int, KafkaError]] = []
        self._rows = zip(
            range(outputs.num_rows),
            [topics[number] for number in outputs.column("output").to_pylist()],
            outputs.column("value").to_pylist(),
            outputs.column("key").to_pylist(),
            header_pairs(outputs.column("headers")),
            outputs.column("timestamp").to_pylist(),
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
                    on_delivery=partial(self._take_answer, number) if self._reports else None,
                    timestamp=timestamp,
                    headers=list(headers),
                )
            except BufferError:
                return False
            except KafkaException as error:
                self._unanswered -= self._reports
                self._failed.append((number, error.args[0]))
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
