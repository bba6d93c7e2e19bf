"""A cluster in memory behind the consumer, for tests of handlers and of the consumer itself.

cluster = MemoryCluster()
cluster.create("orders", partitions=3)
cluster.write(Output("orders", b"42", key=b"alice"))
options = ConsumerOptions(topics=("orders",), group_id="billing")
ParallelConsumer(options, MemoryBackend(cluster, options)).run(charge)
"""

from __future__ import annotations

from wasmline.consumer.backends.memory.cluster import MemoryCluster
from wasmline.consumer.backends.memory.group import Member
from wasmline.consumer.backends.memory.sink import MemorySink
from wasmline.consumer.backends.memory.source import MemorySource
from wasmline.consumer.backends.memory.transactional_producer import MemoryTransactionalProducer
from wasmline.consumer.backends.memory.transactions import MemoryTransactions
from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.timings import DEFAULT_TIMINGS, Timings

__all__ = ["MemoryBackend", "MemoryCluster", "MemoryTransactionalProducer"]


class MemoryBackend:
    """One member of a group on a cluster in memory, with the same contract as Kafka's ``Backend``."""

    def __init__(
        self, cluster: MemoryCluster, options: ConsumerOptions, *, _timings: Timings = DEFAULT_TIMINGS
    ) -> None:
        self._cluster = cluster
        self._group = options.group_id
        member = Member(options.topics)
        prefix = options.transactional_id or options.group_id
        self.source = MemorySource(cluster, options, member, _timings)
        self.sink = MemorySink(cluster)
        self.transactions = MemoryTransactions(cluster, options.group_id, prefix, member)

    def use_columns(self) -> None:
        """Nothing is to prepare."""

    def remove_from_group(self) -> None:
        """Remove this member from its group, as a broker does after a session time-out."""
        self._cluster.remove_member(self._group, self.source.member)

    expel = remove_from_group  # its earlier name, until release 0.2.0
