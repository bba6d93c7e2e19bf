"""Records between the client's messages and columns: as few Python calls for each of them as there can be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from wasmline.consumer.backends.kafka.group_source import headers_of
from wasmline.consumer.columns import OutputColumns, RecordColumns
from wasmline.kafka.producer import ANY_PARTITION
from wasmline.record_batches import header_pairs, record_batch
from wasmline.topic_partitions import TopicPartition


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


class OutputWriter:
    """Passes the outputs of one call to a client, in their order and as its queue has capacity."""

    def __init__(self, outputs: OutputColumns) -> None:
        columns = outputs.batch
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

    def write(
        self,
        client: Producer,
        delivered: Callable[[int, KafkaError | None, Message | None], None],
    ) -> bool:
        """Pass outputs to the client until its queue is full; return whether all have been passed.

        ``delivered`` is called with the place of each output: by the client, and here for one that it refuses.
        """
        produce = client.produce
        while self._next is not None:
            number, topic, value, key, headers, timestamp = self._next
            try:
                produce(
                    topic,
                    value=value,
                    key=key,
                    partition=ANY_PARTITION,
                    on_delivery=partial(delivered, number),
                    timestamp=timestamp,
                    headers=list(headers),
                )
            except BufferError:
                return False
            except KafkaException as error:
                delivered(number, error.args[0], None)
            self._next = next(self._rows, None)
        return True
