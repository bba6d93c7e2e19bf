"""Follows the control topics of a cluster, and the ends of the topics that its transforms read."""

from __future__ import annotations

import threading
import time

from wasmline.clock import now_ms
from wasmline.control import control_topics
from wasmline.control.cluster_state import FOLLOWED_TOPICS, ClusterState
from wasmline.kafka import KafkaConfig, Topics, TopicTailer

ENDS_INTERVAL_S = 3.0
"""Seconds between two readings of the topics' ends."""

REQUEST_TIMEOUT_S = 10.0

LAST_LOG_OFFSETS = 20_000
"""Offsets of the log topic before its end that are read at first: its records of a day may be many."""


class ClusterFollower:
    """Keeps a ClusterState up to date. For one thread; close it, also after an error.

    Other threads read the ``state`` with the ``lock``, which is held for no request to the cluster. It creates no
    topic, and writes nothing. Raises BrokerUnavailable.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self.state = ClusterState()
        self.lock = threading.Lock()
        self._config = config
        self._topics = Topics(config, timeout=REQUEST_TIMEOUT_S)
        self._tailer: TopicTailer | None = None
        self._ends_at = 0.0

    def poll(self) -> None:
        """Apply what was written since the last call; the first time, all.

        A cluster without control topics has an empty state until they are created. Raises BrokerUnavailable,
        HangingTransaction, KafkaError.
        """
        if self._tailer is None and control_topics.exist(self._config):
            self._tailer = self._open()
        if self._tailer is not None:
            for message in self._tailer.poll():
                with self.lock:
                    self.state.apply(message.topic() or "", message.key(), message.value(), message.timestamp()[1])
        if time.monotonic() >= self._ends_at:
            bounds = self._topics.bounds(sorted(self.state.input_topics))
            ends = {topic: {each: end for each, (_, end) in found.items()} for topic, found in bounds.items()}
            with self.lock:
                self.state.set_ends(ends)
            self._ends_at = time.monotonic() + ENDS_INTERVAL_S
        with self.lock:
            self.state.tick(now_ms())

    def close(self) -> None:
        """Close the Kafka clients."""
        if self._tailer is not None:
            self._tailer.close()

    def _open(self) -> TopicTailer:
        begin, end = self._topics.bounds([control_topics.LOGS])[control_topics.LOGS][0]
        first = max(begin, end - LAST_LOG_OFFSETS)
        return TopicTailer(self._config, FOLLOWED_TOPICS, {control_topics.LOGS: first})
