"""Beginning and end offsets from partition leaders, retried across leader elections."""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # public, though not in its __all__

from wasmline.errors import TopicNotFound
from wasmline.kafka.bounded_admin_client import BoundedAdminClient, Codes
from wasmline.kafka.error_mapping import LEADERLESS_CODES

UNSETTLED_CODES = (*LEADERLESS_CODES, KafkaError._NOENT)
"""_NOENT is the client's own code if no broker has reported a leader."""


def list_topic_offsets(
    admin: BoundedAdminClient, wanted: dict[TopicPartition, OffsetSpec], isolation: IsolationLevel
) -> dict[tuple[str, int], int]:
    """Return the offsets of partitions of any topics; a partition whose topic is gone meanwhile is absent.

    Raises BrokerUnavailable where a partition has no leader that answers in time.
    """
    gone = TopicNotFound("its topic was deleted", topic="")

    def ask(unsettled: Codes) -> dict[tuple[str, int], int]:
        answers = admin.client.list_offsets(wanted, isolation_level=isolation, request_timeout=admin.attempt)
        known = {KafkaError.UNKNOWN_TOPIC_OR_PART: gone, KafkaError.TOPIC_EXCEPTION: gone, **unsettled}
        found = {}
        for each, answer in answers.items():
            with suppress(TopicNotFound):
                found[each.topic, each.partition] = admin.result(answer, known).offset
        if OFFSET_INVALID in found.values():  # no error: the leader that the client knows did not answer in time
            raise unsettled[KafkaError.LEADER_NOT_AVAILABLE]
        return found

    return admin.settled(ask, UNSETTLED_CODES, "a partition has no leader for now", learns=True) if wanted else {}


def list_offsets(
    admin: BoundedAdminClient,
    wanted: dict[TopicPartition, OffsetSpec],
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    codes: Codes | None = None,
) -> dict[int, int]:
    """Return the offsets of one topic's partitions; ``codes`` maps other error codes to errors.

    Raises BrokerUnavailable where a partition has no leader that answers in time.
    """

    def ask(unsettled: Codes) -> dict[int, int]:
        answers = admin.client.list_offsets(wanted, isolation_level=isolation, request_timeout=admin.attempt)
        known = {**(codes or {}), **unsettled}
        found = {each.partition: admin.result(answer, known).offset for each, answer in answers.items()}
        if OFFSET_INVALID in found.values():  # no error: the leader that the client knows did not answer in time
            raise unsettled[KafkaError.LEADER_NOT_AVAILABLE]
        return found

    names = ", ".join(sorted({partition.topic for partition in wanted}))
    return admin.settled(ask, UNSETTLED_CODES, f"a partition of {names} has no leader for now", learns=True)
