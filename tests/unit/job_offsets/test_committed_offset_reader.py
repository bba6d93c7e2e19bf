"""Reading the committed offsets of a job."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from wasmline.errors import BrokerUnavailable, HangingTransactionEnded
from wasmline.job_offsets import committed_offset_reader
from wasmline.job_offsets.committed_offset_reader import GroupOffsets, stable_offsets
from wasmline.job_specs import JobSpec, StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.topic_partitions import CommittedOffset, TopicPartition


def test_offsets_are_read_again_once_a_hanging_transaction_was_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was found by a driver that has no producers, so that no query has to end for it."""
    text, found = "markers were lost", {TopicPartition("in", 0): CommittedOffset(7)}
    ended = HangingTransactionEnded(text, bootstrap_servers="nowhere:1", partitions=())
    answers: list[HangingTransactionEnded | Mapping[TopicPartition, CommittedOffset]] = [ended, found]

    def read(
        self: GroupOffsets, partitions: Collection[TopicPartition], limit: float = 1.0
    ) -> Mapping[TopicPartition, CommittedOffset]:
        answer = answers.pop(0)
        if isinstance(answer, HangingTransactionEnded):
            raise answer
        return answer

    monkeypatch.setattr(GroupOffsets, "_read", read)
    stream = StreamSpec(transform="t", delivery="exactly_once")
    job = JobSpec(job="j", run="r", storage="memory://jobs", stream=stream)
    config = KafkaConfig({"bootstrap.servers": "nowhere:1"})
    assert stable_offsets(config, job, "in", [0], keeps_maps=True) == {0: CommittedOffset(7)}


@pytest.mark.parametrize("limit", [60.0, 0.0], ids=["answered at once", "held for the whole limit"])
def test_nobody_is_fenced_but_by_a_read_that_took_its_whole_limit(
    monkeypatch: pytest.MonkeyPatch, limit: float
) -> None:
    """A coordinator that has moved answers at once, and holds nothing."""
    fenced = []

    def read(self: GroupOffsets, partitions: Collection[TopicPartition], limit: float) -> None:
        raise BrokerUnavailable("another broker is the coordinator now", bootstrap_servers="nowhere:1")

    monkeypatch.setattr(GroupOffsets, "_read", read)
    monkeypatch.setattr(committed_offset_reader, "abort_open_transactions", lambda _, ids, *__: fenced.append(ids))
    progress = GroupOffsets(KafkaConfig({"bootstrap.servers": "nowhere:1"}), "g", "p", keeps_maps=True)
    with pytest.raises(BrokerUnavailable):
        progress.committed([TopicPartition("in", 0)], limit, lambda: None)
    progress.close()
    assert fenced == ([] if limit else [["p/in/0"]])
