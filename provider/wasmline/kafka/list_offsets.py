"""Beginning and end offsets from partition leaders, retried across leader elections."""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # public, though not in its __all__

from wasmline.errors import WasmlineError
from wasmline.kafka.bounded_admin_client import BoundedAdminClient, Codes
from wasmline.kafka.error_mapping import LEADERLESS_CODES
from wasmline.printable import bounded_line

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
    found = list_topic_offsets(admin, wanted, isolation, codes)
    return {partition: offset for (_, partition), offset in found.items()}


def list_topic_offsets(
    admin: BoundedAdminClient,
    wanted: dict[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
    codes: Codes | None = None,
    skipped: tuple[type[WasmlineError], ...] = (),
) -> dict[tuple[str, int], int]:
    """Return the offsets of partitions of any topics, as ``list_offsets`` does for one.

    ``skipped``: errors of ``codes`` for which a partition is left out.
    """

    def ask(unsettled: Codes, limit: float) -> dict[tuple[str, int], int]:
        answers = admin.client.list_offsets(wanted, isolation_level=isolation, request_timeout=limit)
        known = {**(codes or {}), **unsettled}
        found = {}
        for each, answer in answers.items():
            with suppress(*skipped):
                found[each.topic, each.partition] = admin.result(answer, known, limit=limit).offset
        if OFFSET_INVALID in found.values():  # no error: the leader that the client knows did not answer in time
            raise unsettled[KafkaError.LEADER_NOT_AVAILABLE]
        return found

    names = bounded_line(", ".join(sorted({partition.topic for partition in wanted})))
    return admin.settled(ask, UNSETTLED_CODES, f"a partition of {names} has no leader for now", learns=True)
