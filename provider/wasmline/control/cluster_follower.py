"""Follows the control topics of a cluster, and the ends of the topics that its transforms read."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from functools import partial

from wasmline.background_call import BackgroundCall
from wasmline.clock import now_ms
from wasmline.control import control_topics
from wasmline.control.cluster_state import FOLLOWED_TOPICS, ClusterState
from wasmline.errors import WasmlineError
from wasmline.kafka import KafkaConfig, Topics, TopicTailer

ENDS_INTERVAL_S = 3.0
"""Seconds between two readings of the topics' ends."""

TOPICS_INTERVAL_S = 3.0
"""Seconds between two checks for control topics that do not exist yet."""

REQUEST_TIMEOUT_S = 10.0

SKIP_S = 60.0
"""Seconds for which a topic whose ends cannot be read is left out."""

LAST_LOG_OFFSETS = 20_000
"""Offsets of the log topic before its end that are read at first: its records of a day may be many."""

Ends = dict[str, dict[int, int]]


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
        self._ends = EndOffsetReader(config)
        self._tailer: TopicTailer | None = None
        self._exist_at = 0.0

    @property
    def ends_error(self) -> WasmlineError | None:
        """Why the ends of some input topic are not known; its lag is then as it was reported."""
        return self._ends.error

    def poll(self) -> None:
        """Apply what was written since the last call; the first time, all.

        A cluster without control topics has an empty state until they are created. Raises BrokerUnavailable,
        HangingTransaction, KafkaError.
        """
        with self.lock:
            self.state.tick(now_ms())
        if self._tailer is None and time.monotonic() >= self._exist_at:
            self._exist_at = time.monotonic() + TOPICS_INTERVAL_S
            if len(self._topics.describe_existing(FOLLOWED_TOPICS)) == len(FOLLOWED_TOPICS):
                self._tailer = self._open()
        if self._tailer is not None:
            for message in self._tailer.poll():
                with self.lock:
                    self.state.apply(message.topic() or "", message.key(), message.value(), message.timestamp()[1])
        with self.lock:
            topics = self.state.input_topics
        if (ends := self._ends.read(topics)) is not None:
            with self.lock:
                self.state.set_ends(ends)

    def close(self) -> None:
        """Close the Kafka clients."""
        if self._tailer is not None:
            self._tailer.close()

    def _open(self) -> TopicTailer:
        begin, end = self._topics.bounds([control_topics.LOGS])[control_topics.LOGS][0]
        first = max(begin, end - LAST_LOG_OFFSETS)
        return TopicTailer(self._config, FOLLOWED_TOPICS, {control_topics.LOGS: first})


class EndOffsetReader:
    """Reads the end offsets of topics from time to time, in a thread of its own: a topic without a leader delays it."""

    def __init__(self, config: KafkaConfig) -> None:
        self.error: WasmlineError | None = None
        self._topics = Topics(config, timeout=REQUEST_TIMEOUT_S)
        self._call: BackgroundCall[tuple[Ends, WasmlineError | None]] | None = None
        self._next_at = 0.0
        self._skipped: dict[str, float] = {}

    def read(self, topics: Collection[str]) -> Ends | None:
        """Return the ends that were read last, once; begin to read those of ``topics`` if it is time. Does not wait."""
        found = None
        if self._call is not None and self._call.wait(0):
            done, self._call = self._call, None
            self._next_at = time.monotonic() + ENDS_INTERVAL_S
            found, self.error = done.result()
        if self._call is None and time.monotonic() >= self._next_at:
            self._call = BackgroundCall(partial(self._read, sorted(topics)))
        return found

    def _read(self, topics: Collection[str]) -> tuple[Ends, WasmlineError | None]:
        """Return the ends of the topics that can be read, and why others cannot: these are left out for a while."""
        now = time.monotonic()
        self._skipped = {topic: until for topic, until in self._skipped.items() if until > now}
        wanted = [topic for topic in topics if topic not in self._skipped]
        try:
            return self._bounds(wanted), self.error if self._skipped else None
        except WasmlineError as error:
            return self._one_by_one(wanted, error)

    def _one_by_one(self, topics: Collection[str], error: WasmlineError) -> tuple[Ends, WasmlineError]:
        ends: Ends = {}
        for topic in topics:
            try:
                ends |= self._bounds([topic])
            except WasmlineError as last:
                error = last
                self._skipped[topic] = time.monotonic() + SKIP_S
        return ends, error

    def _bounds(self, topics: Collection[str]) -> Ends:
        bounds = self._topics.bounds(topics)
        return {topic: {each: end for each, (_, end) in found.items()} for topic, found in bounds.items()}
