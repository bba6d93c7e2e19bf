"""The clusters that a consumer reads and writes: their protocols, Kafka, and a cluster in memory."""

from wasmline.consumer.backends.base import Backend, RebalanceListener, Sink, Source, Transactions

__all__ = ["Backend", "RebalanceListener", "Sink", "Source", "Transactions"]
