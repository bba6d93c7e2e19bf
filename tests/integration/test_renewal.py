"""Progress that is renewed: as it was, by whoever may, and so that nobody else's work is lost."""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lease_rig import EXACTLY_ONCE, NOTHING, Rigs
from stage import keyed, make_stage, until
from wasmline.consumer import offset_codec
from wasmline.consumer.confluent.batch_transactions import BatchTransactions
from wasmline.errors import ProducerFenced
from wasmline.kafka import ConsumerGroups, KafkaConfig, read_to_end
from wasmline.pipeline import renewal
from wasmline.records import CommittedOffset, TopicPartition
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka

MAP = offset_codec.encode(5, 20, range(5, 20, 2))


def commits(config: KafkaConfig, group: str) -> int:
    """Return how often something was committed for a group."""
    return sum(group.encode() in (each.key() or b"") for each in read_to_end(config, "__consumer_offsets"))


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_progress_is_committed_as_it_is_once_it_is_time(
    rigs: Rigs, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    rig = rigs(delivery=delivery)
    sources = [TopicPartition(rig.topic, each) for each in range(3)]
    left = {sources[0]: CommittedOffset(5, MAP), sources[1]: CommittedOffset(7)}
    transactions = BatchTransactions(rig.config, rig.job.group, rig.job.transactional_id, {})
    for source, progress in left.items():
        with transactions.open([source]) as transaction:
            transaction.commit({source: progress})
    before = commits(rig.config, rig.job.group)

    keeper = renewal.Renewal(rig.config, rig.topic)
    keeper.keep(rig.job, range(3))
    assert commits(rig.config, rig.job.group) == before
    monkeypatch.setattr(renewal, "FIRST", 0.0)
    keeper = renewal.Renewal(rig.config, rig.topic)
    keeper.keep(rig.job, range(3))
    keeper.keep(rig.job, range(3))

    assert commits(rig.config, rig.job.group) == before + len(left)
    for source in sources:
        with transactions.open([source]) as transaction:
            assert transaction.progress.get(source) == left.get(source)
    transactions.close()


def test_whoever_works_on_is_fenced_by_the_renewal_of_exactly_once(rigs: Rigs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "FIRST", 0.0)
    rig = rigs(**EXACTLY_ONCE)
    source = TopicPartition(rig.topic, 0)
    transactions = BatchTransactions(rig.config, rig.job.group, rig.job.transactional_id, {})
    with transactions.open([source]) as transaction:
        transaction.commit({source: CommittedOffset(3)})

    def overtaken() -> None:
        with transactions.open([source]) as transaction:
            renewal.Renewal(rig.config, rig.topic).keep(rig.job, [0])
            transaction.commit({source: CommittedOffset(4)})

    with pytest.raises(ProducerFenced):
        overtaken()
    with transactions.open([source]) as transaction:
        assert transaction.progress == {source: CommittedOffset(3)}
    transactions.close()


def test_leases_and_batches_renew_what_they_find(
    kafka: RunningKafka, spark: SparkSession, rigs: Rigs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "FIRST", 0.0)
    monkeypatch.setattr(renewal, "EVERY", 0.5)
    rig = rigs(**EXACTLY_ONCE)
    first = rig.lessor()
    grant = first.next(NOTHING)
    begun = commits(rig.config, rig.job.group)
    time.sleep(0.6)
    assert first.next(grant).progress == grant.progress
    assert commits(rig.config, rig.job.group) == begun + len(grant.progress)

    stage = make_stage(kafka.config, spark, tmp_path)
    stage.deploy(guest())
    stage.produce(keyed(300))
    with stage.running(delivery="exactly_once"):
        until(lambda: len(stage.out()) == 300)
        group = f"wasmline.{stage.job}"
        committed = commits(stage.config, group)
        until(lambda: commits(stage.config, group) > committed + 6)
        stage.produce(keyed(300, first=300))
        until(lambda: len(stage.out()) == 600)
    assert sum(ConsumerGroups(stage.config).committed(group, stage.spec.input_topic).values()) == 600
