"""The offset store of a group, selected when the first partition is known."""

from __future__ import annotations

import threading

from wasmline.kafka.committed_offset_store import CommittedOffsetStore, select_offset_store
from wasmline.kafka.config import KafkaConfig
from wasmline.topic_partitions import TopicPartition


class LazyOffsetStore:
    """Selects the store once, with the first partition that the group reads, which the self-test needs.

    A given ``offset_store`` is used without a self-test.
    """

    def __init__(self, config: KafkaConfig, group: str, offset_store: CommittedOffsetStore | None = None) -> None:
        self._config = config
        self._group = group
        self._offset_store = offset_store
        self._testing = threading.Lock()

    def on(self, partition: TopicPartition) -> CommittedOffsetStore:
        """Return the offset store. Raises BrokerUnavailable, ClientUntested; TopicNotFound for a missing partition."""
        with self._testing:
            if self._offset_store is None:
                self._offset_store = select_offset_store(self._config, self._group, partition)
            return self._offset_store
