"""Fires while a topic grows, with the offsets that were written."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from wasmline.new_records import EventThresholds, TopicEnds, new_offsets
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.triggers.polling import Poller, PollingEventTrigger

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig
    from wasmline_provider.hooks.wasmline import Locations

POLL_INTERVAL_S = 5.0

STATE_KEY = "wasmline_topic_ends"


class NewRecordsTrigger(PollingEventTrigger):
    """Fires when committed records were written to a topic, such as the output of a stream that never ends.

    A deferred task cannot emit events: Airflow resumes it at its trigger's first event. So the stream's output topic is
    an asset that is watched::

        progress = NewRecordsTrigger(topic="deliveries.features", every_records=20_000)
        watchers = [AssetWatcher("progress", progress)]
        features = topic_asset(server="kafka:9092", topic="deliveries.features", watchers=watchers)

    Airflow runs the watchers of assets that an active DAG is scheduled on. The payload is ``topic``, ``topic_id``,
    ``records``, the new ``offsets`` as half-open ranges by partition, and the topic's ends, ``until``. The first event
    is about records that are written after the first poll. The ends of the last event, before it those of the first
    poll, are kept in the asset's state, so that a triggerer which restarts continues there. Two assets with equal
    triggers share one, which has no state to keep. An event may be lost or repeated: its offsets tell.

    :param topic: the topic.
    :param every_records: fire after so many records.
    :param every_seconds: fire so many seconds after the last event, if records were written.
    :param kafka_conn_id: the connection of the cluster.
    :param poll_seconds: the time between two polls.
    """

    def __init__(
        self,
        *,
        topic: str,
        every_records: int | None = None,
        every_seconds: float | None = None,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        poll_seconds: float = POLL_INTERVAL_S,
    ) -> None:
        super().__init__(kafka_conn_id=kafka_conn_id, poll_seconds=poll_seconds)
        self.topic = topic
        self.thresholds = EventThresholds(every_records=every_records, every_seconds=every_seconds)
        self._last: TopicEnds | None = None
        self._stored: TopicEnds | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "wasmline_provider.triggers.new_records.NewRecordsTrigger",
            {
                "topic": self.topic,
                **asdict(self.thresholds),
                "kafka_conn_id": self.kafka_conn_id,
                "poll_seconds": self.poll_seconds,
            },
        )

    def poller(self, config: KafkaConfig, locations: Locations) -> Poller:
        from wasmline.clock import now_ms
        from wasmline.kafka import Topics

        topics = Topics(config)

        def poll() -> dict[str, Any] | None:
            topic_id = topics.describe(self.topic).id
            ends = {str(partition): end for partition, end in sorted(topics.end_offsets(self.topic).items())}
            now = TopicEnds(topic_id=topic_id, ends=ends, at_ms=now_ms())
            last = self._last = self._last or now
            if not self.thresholds.is_due(last, now):
                return None
            self._last = now
            offsets = {partition: list(bounds) for partition, bounds in new_offsets(last, now).items()}
            return {
                "topic": self.topic,
                "topic_id": topic_id,
                "records": sum(end - start for start, end in offsets.values()),
                "offsets": offsets,
                "until": ends,
            }

        return Poller(poll)

    async def restore(self) -> None:
        import msgspec

        stored = await self.asset_state_store.aget(STATE_KEY) if self.asset_state_store else None
        if stored is not None:
            self._last = self._stored = msgspec.convert(stored, TopicEnds)

    async def store(self) -> None:
        from wasmline.documents import plain

        last = self._last
        if self.asset_state_store and last is not self._stored:
            await self.asset_state_store.aset(STATE_KEY, plain(last))
            self._stored = last
