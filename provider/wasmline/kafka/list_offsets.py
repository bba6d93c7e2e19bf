"""Beginning and end offsets from partition leaders, retried across leader elections."""

from __future__ import annotations

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # public, though not in its __all__

from wasmline.kafka.bounded_admin_client import BoundedAdminClient, Codes
from wasmline.kafka.error_mapping import LEADERLESS_CODES

UNSETTLED_CODES = (*LEADERLESS_CODES, KafkaError._NOENT)
"""_NOENT is the client's own code if no broker has reported a leader."""


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
