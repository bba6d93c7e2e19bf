"""The redrive topic: which dead letters were written again, by whom and where.

Keys, for a dead-letter topic ``t`` with the id ``i``: ``t/i/redrive/r`` holds the Redrive ``r``, and
``t/i/offsets/p/b`` the RedrivenOffsets of block ``b`` of partition ``p``: of the BLOCK_OFFSETS offsets from
``b * BLOCK_OFFSETS`` on. Both are written in the transaction of the records that the dead letters become. The fields:
docs/protocols/control_topics.md.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from wasmline.control import control_topics
from wasmline.control.deployment_history import NO_CAUSE, ChangeCause
from wasmline.documents import decode, encode
from wasmline.errors import InvalidSpec, UnsupportedSpecVersion
from wasmline.kafka import CompactedTopic, KafkaConfig, TopicInfo, TopicRecord, TransactionalWriter
from wasmline.offset_ranges import union_of
from wasmline.printable import bounded_line

logger = logging.getLogger(__name__)

BLOCK_OFFSETS = 10_000

_OFFSETS = re.compile(rb"offsets/([0-9]{1,10})/([0-9]{1,15})")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSelection:
    """The dead letters to redrive: those with all of these; None for any.

    transform, error: of the headers ``wasmline.transform``, with or without its version, and ``wasmline.error``, or as
        it is counted: ``Rejected: bad date``.
    reason_contains: a part of the header ``wasmline.reason``.
    source_topic: the topic of the record that failed.
    partition, offset: those of the dead letter.
    """

    transform: str | None = None
    error: str | None = None
    reason_contains: str | None = None
    source_topic: str | None = None
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """One redrive of a dead-letter topic, and what it has done so far.

    limit: the maximum number to redrive.
    to_topic: where the records are written; None: to the topic that each comes from.
    through, generation: the transform that processes them instead, and the generation that does.
    ends: the end offset of each partition of the dead-letter topic at its start; later ones are not redriven.
    dead_letters: how many were redriven. outputs, failed_again: what the transform wrote of those, and how many failed
        again.
    skipped: how many could not be redriven, by reason. They stay pending.
    """

    id: str
    topic: str
    topic_id: str
    selection: DeadLetterSelection
    limit: int | None = None
    ends: dict[int, int]
    to_topic: str | None = None
    through: str | None = None
    generation: int | None = None
    cause: ChangeCause = NO_CAUSE
    state: Literal["running", "done"] = "running"
    dead_letters: int = 0
    outputs: int = 0
    failed_again: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    started_ms: int
    updated_ms: int
    spec_version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivenOffsets:
    """The offsets of one block whose dead letters were redriven, as ascending boundaries of half-open ranges.

    A range may hold offsets without a record.
    """

    boundaries: tuple[int, ...]
    spec_version: Literal[1] = 1

    def __post_init__(self) -> None:
        if len(self.boundaries) % 2 or any(one >= other for one, other in pairwise(self.boundaries)):
            raise InvalidSpec(f"boundaries are not pairs in ascending order: {self.boundaries[:6]}")


Blocks = Mapping[tuple[int, int], tuple[int, ...]]
"""The boundaries of RedrivenOffsets by partition and block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveState:
    """What the redrive topic knows of one dead-letter topic.

    stale: keys about dead letters that are gone: of a topic of this name that was deleted, or removed by retention.
    unreadable: records of offsets that this release cannot read: their dead letters count as pending.
    """

    topic: TopicInfo
    redrives: Mapping[str, Redrive]
    blocks: Blocks
    stale: tuple[bytes, ...] = ()
    unreadable: tuple[str, ...] = ()

    def require_readable(self) -> None:
        """Raise UnsupportedSpecVersion if dead letters might be redriven twice."""
        if self.unreadable:
            raise UnsupportedSpecVersion(
                f"no dead letter of {self.topic.name} is redriven: some may have been, by what this release cannot "
                f"read, {'; '.join(self.unreadable)}. Use the release that wrote it; if none did, delete the record"
            )

    def is_redriven(self, partition: int, offset: int) -> bool:
        """Return whether the dead letter at an offset was redriven."""
        boundaries = self.blocks.get((partition, offset // BLOCK_OFFSETS), ())
        return bisect_right(boundaries, offset) % 2 == 1


class RedriveTopic:
    """Reads the redrive topic."""

    def __init__(self, config: KafkaConfig) -> None:
        control_topics.ensure(config)
        self._config = config

    def read(self, topic: TopicInfo, begins: Mapping[int, int]) -> RedriveState:
        """Return the redrives of a dead-letter topic whose partitions begin at ``begins``.

        A record that this release cannot read is skipped with a warning. Raises BrokerUnavailable.
        """
        prefix, of_topic = _prefix(topic), f"{topic.name}/".encode()
        table = CompactedTopic(self._config, control_topics.REDRIVES, keep=lambda key: key.startswith(of_topic))
        with closing(table):
            view = table.read()
        redrives: dict[str, Redrive] = {}
        blocks: dict[tuple[int, int], tuple[int, ...]] = {}
        stale: list[bytes] = []
        unreadable: list[str] = []
        for key, value in view.items():
            offsets = _OFFSETS.fullmatch(key.removeprefix(prefix))
            if not key.startswith(prefix) or (offsets and _is_gone(offsets, begins)):
                stale.append(key)
                continue
            record = f"record {bounded_line(key.decode(errors='replace'))} of {control_topics.REDRIVES}"
            try:
                if offsets:
                    blocks[_block(offsets)] = decode(RedrivenOffsets, value).boundaries
                elif key == _redrive_key(topic, (redrive := decode(Redrive, value)).id):
                    redrives[redrive.id] = redrive
                else:
                    logger.warning("%s is skipped: it is redrive %s", record, bounded_line(redrive.id))
            except UnsupportedSpecVersion as error:
                logger.warning("%s is skipped: %s", record, bounded_line(error))
                if offsets:
                    unreadable.append(record)
        return RedriveState(
            topic=topic, redrives=redrives, blocks=blocks, stale=tuple(stale), unreadable=tuple(unreadable)
        )


class RedriveWriter:
    """Writes the records of redriven dead letters, and which those are, in one transaction; for one dead-letter topic.

    A newer one for the same topic fences it. After a failure it cannot be used any more.
    """

    def __init__(self, config: KafkaConfig, topic: str, compression: str = "none") -> None:
        """Fence other redrives of the topic. Raises Conflict, BrokerUnavailable."""
        settings = {"batch.size": "1", "compression.type": compression}  # a record that its topic takes is taken alone
        self._writer = TransactionalWriter(
            config, control_topics.REDRIVES, f"wasmline.redrive.{topic}", settings=settings
        )

    def write(
        self,
        state: RedriveState,
        redrive: Redrive,
        dead_letters: Iterable[tuple[int, int, int]],
        records: Collection[TopicRecord] = (),
    ) -> RedriveState:
        """Write ``records``, and ``redrive`` as it is after them; return what follows ``state``.

        state: as it was read once the others were fenced, or as the write before returned it.
        dead_letters: the partition of each, its offset, and the offset after the record before it: there is no record
        between these two, so that ranges of neighbours join.

        Raises Conflict, RecordRejected if a topic does not take one of the records, and BrokerUnavailable.
        """
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for partition, offset, range_start in dead_letters:
            block = offset // BLOCK_OFFSETS
            start = max(range_start, block * BLOCK_OFFSETS)
            found.setdefault((partition, block), []).append((start, offset + 1))
        blocks = {
            place: union_of([{"0": state.blocks.get(place, ())}, *({"0": each} for each in ranges)])["0"]
            for place, ranges in found.items()
        }
        prefix = _prefix(state.topic)
        written: dict[bytes, bytes | None] = dict.fromkeys(state.stale)
        for (partition, block), boundaries in blocks.items():
            written[prefix + f"offsets/{partition}/{block}".encode()] = encode(RedrivenOffsets(boundaries=boundaries))
        written[_redrive_key(state.topic, redrive.id)] = encode(redrive)
        self._writer.write(written, records)
        redrives = {**state.redrives, redrive.id: redrive}
        return RedriveState(topic=state.topic, redrives=redrives, blocks={**state.blocks, **blocks})

    def close(self) -> None:
        """Close the Kafka client."""
        self._writer.close()


def _block(offsets: re.Match[bytes]) -> tuple[int, int]:
    """Return the partition and the block of the key of RedrivenOffsets."""
    partition, block = map(int, offsets.groups())
    return partition, block


def _is_gone(offsets: re.Match[bytes], begins: Mapping[int, int]) -> bool:
    """Return whether retention has removed all dead letters of a block."""
    partition, block = _block(offsets)
    return (block + 1) * BLOCK_OFFSETS <= begins.get(partition, 0)


def _redrive_key(topic: TopicInfo, redrive: str) -> bytes:
    return _prefix(topic) + f"redrive/{redrive}".encode()


def _prefix(topic: TopicInfo) -> bytes:
    return f"{topic.name}/{topic.id}/".encode()
