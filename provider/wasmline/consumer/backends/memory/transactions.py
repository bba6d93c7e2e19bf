"""One transaction per input partition, in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from wasmline.consumer.backends.memory.cluster import MemoryCluster
from wasmline.consumer.backends.memory.group import Member
from wasmline.consumer.backends.memory.transactional_producer import MemoryTransactionalProducer
from wasmline.consumer.records import Output
from wasmline.errors import CommitFailed, OutputRefused, ProducerFenced, WasmlineError
from wasmline.topic_partitions import CommittedOffset, TopicPartition
from wasmline.transactional_ids import transactional_id

if TYPE_CHECKING:
    from wasmline.consumer.columns import OutputColumns


class MemoryTransactions:
    """See Transactions for the contract."""

    def __init__(self, cluster: MemoryCluster, group: str, prefix: str, member: Member) -> None:
        self._cluster = cluster
        self._group = group
        self._prefix = prefix
        self._member = member
        self._writers: dict[TopicPartition, MemoryTransactionalProducer] = {}

    def open(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            name = transactional_id(self._prefix, partition)
            self._writers[partition] = MemoryTransactionalProducer(self._cluster, name)

    def begin(
        self, work: Mapping[TopicPartition, tuple[Sequence[Output | OutputColumns], CommittedOffset]]
    ) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        writers = {partition: self._writers[partition] for partition in work}
        return partial(self._commit, work, writers)

    def _commit(
        self,
        work: Mapping[TopicPartition, tuple[Sequence[Output | OutputColumns], CommittedOffset]],
        writers: Mapping[TopicPartition, MemoryTransactionalProducer],
    ) -> Mapping[TopicPartition, WasmlineError]:
        failures: dict[TopicPartition, WasmlineError] = {}
        for partition, (outputs, progress) in work.items():
            writer = writers[partition]
            try:
                with self._cluster.atomic():
                    self._run_transaction(writer, partition, outputs, progress)
            except (CommitFailed, OutputRefused) as error:
                with suppress(ProducerFenced):  # by the next owner, who has aborted it
                    writer.abort()
                failures[partition] = error
            except WasmlineError as error:
                if self._writers.get(partition) is writer:
                    self.close([partition])
                failures[partition] = error
        return failures

    def close(self, partitions: Collection[TopicPartition] | None = None) -> None:
        for partition in list(self._writers) if partitions is None else partitions:
            if writer := self._writers.pop(partition, None):
                with suppress(ProducerFenced):
                    writer.abort()

    def _run_transaction(
        self,
        writer: MemoryTransactionalProducer,
        partition: TopicPartition,
        outputs: Sequence[Output | OutputColumns],
        progress: CommittedOffset,
    ) -> None:
        self._cluster.require_available()
        with self._cluster.committing():
            for place, output in enumerate(outputs):
                try:
                    for each in [output] if isinstance(output, Output) else output.outputs():
                        writer.write(each)
                except OutputRefused as error:
                    error.place = place
                    raise
            writer.send_offsets(self._group, {partition: progress}, self._member)
            writer.commit()
