"""Which checkpoint a run of micro-batches counts its batches in, and where a checkpoint that is empty begins."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from wasmline.deploy import BatchClaim
from wasmline.kafka import ConsumerGroups, KafkaConfig, Topics

Starting = Literal["earliest", "latest"]

LIMITS = {"earliest": -2, "latest": -1}
"""How Spark's Kafka source is told of an end of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A series of micro-batches.

    resumes: without offsets of its own it begins at the group's progress, and not where the order says.
    known: so many partitions of the input must have progress in the group.
    is_anew: the topic was made anew under its name, so that what the group has committed says nothing of it.
    """

    checkpoint: str
    resumes: bool
    known: int = 0
    is_anew: bool = False


def known_before(last: BatchClaim | None, topic: str, topic_id: str) -> tuple[int, bool]:
    """Return how many partitions have progress after the job's last claim, and whether the topic was made anew since.

    It was if another topic had its name then.
    """
    if last is None:
        return 0, False
    if topic_id in last.checkpoint:
        return last.partitions, False
    return 0, last.deployment is not None and last.deployment.spec.input_topic == topic


def following(last: BatchClaim | None, folder: str, *, topic: str, topic_id: str, exact: bool, run: str) -> Series:
    """Return the series of a run after the job's ``last`` claim; ``folder`` is the job's, below which they lie.

    A run goes on in the checkpoint of the last one where that was of this mode and of the same delivery, and the topic
    is the same. After another mode, or another delivery, it is the group that knows how far the job came.
    """
    plain = f"{folder}/{topic_id}"
    if last is None:
        return Series(checkpoint=plain, resumes=exact)
    known, is_anew = known_before(last, topic, topic_id)
    if topic_id not in last.checkpoint:
        return Series(checkpoint=plain, resumes=exact, is_anew=is_anew)
    if last.mode == "microbatch" and exact == (last.delivery == "exactly_once"):
        return Series(checkpoint=last.checkpoint, resumes=exact or last.checkpoint != plain, known=known)
    return Series(checkpoint=f"{plain}.{run}", resumes=True, known=known)


def progress_of(config: KafkaConfig, group: str, topic: str, otherwise: Starting) -> str:
    """Return the group's progress as ``startingOffsets`` of the Kafka source, which wants every partition."""
    committed = ConsumerGroups(config).committed(group, topic)
    partitions = range(Topics(config).describe(topic).partitions)
    return json.dumps({topic: {str(each): committed.get(each, LIMITS[otherwise]) for each in partitions}})
