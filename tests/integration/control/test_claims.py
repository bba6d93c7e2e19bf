"""Claims of a job on a real broker: who drives it, and whom that ends."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from support.streams.transform_job import until
from wasmline.control import ClaimProducer, ClaimWriter, DriverClaim, JobTopic
from wasmline.errors import BrokerUnavailable, Fenced
from wasmline.job_offsets import offset_renewal
from wasmline.kafka import KafkaConfig, read_to_end
from wasmline.local import LocalKafka, server_properties
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka

CLAIM = DriverClaim(run="r", driver="d", topic="in", topic_id="ID", checkpoint="c", batch_id=3, deployment=None)

FORGETFUL = {
    "offsets.retention.minutes": "1",
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaConfig]:
    """Yield a broker that forgets transactional producers after a second, and progress after a minute."""
    local = LocalKafka(tmp_path_factory.mktemp("kafka"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_properties, "SMALL", server_properties.SMALL | FORGETFUL)
        local.start()
    try:
        config = KafkaConfig({"bootstrap.servers": local.bootstrap_servers})
        JobTopic(config).close()  # makes the control topics
        yield config
    finally:
        local.stop()


def job() -> str:
    return f"job-{uuid.uuid4().hex[:8]}"


def is_forgotten(config: KafkaConfig, name: str) -> bool:
    told = [each.value() for each in read_to_end(config, "__transaction_state") if name.encode() in (each.key() or b"")]
    return bool(told) and told[-1] is None


def test_a_driver_that_sleeps_past_its_producers_expiry_goes_on(forgetful: KafkaConfig) -> None:
    alone, kept = job(), job()
    driver, keeper = ClaimProducer(forgetful, alone), ClaimWriter(forgetful, kept, "d")
    driver.claim(CLAIM)
    keeper.take_over(lambda last: CLAIM)
    until(lambda: is_forgotten(forgetful, alone) and is_forgotten(forgetful, kept))
    following = replace(CLAIM, batch_id=4)
    driver.claim(following)
    keeper.claim(following)
    jobs = JobTopic(forgetful)
    assert jobs.last_claim(alone) == jobs.last_claim(kept) == following

    until(lambda: is_forgotten(forgetful, alone) and is_forgotten(forgetful, kept))
    other = replace(CLAIM, driver="other")
    rivals = [ClaimProducer(forgetful, name) for name in (alone, kept)]
    for rival in rivals:
        rival.claim(other)
    until(lambda: is_forgotten(forgetful, alone) and is_forgotten(forgetful, kept))
    for late in (driver, keeper):
        with pytest.raises(Fenced):
            late.claim(replace(CLAIM, batch_id=5))
    assert jobs.last_claim(alone) == jobs.last_claim(kept) == other
    for each in (driver, keeper, jobs, *rivals):
        each.close()  # type: ignore[attr-defined]


def test_a_claim_is_recorded_once_a_broker_is_back_that_was_away_for_longer_than_a_delivery_takes(
    tmp_path: Path,
) -> None:
    with LocalKafka(tmp_path) as local:
        config = KafkaConfig({"bootstrap.servers": local.bootstrap_servers, "delivery.timeout.ms": "1000"})
        name = job()
        keeper = ClaimWriter(config, name, "d")
        keeper.take_over(lambda _: CLAIM)
        with ThreadPoolExecutor(1) as thread:
            local.stop_node(1)
            following = replace(CLAIM, batch_id=4)
            claimed = thread.submit(keeper.claim, following)
            assert not wait_until(claimed.done, 3.0)
            local.start_node(1)
            claimed.result(60.0)
        jobs = JobTopic(config)
        assert jobs.last_claim(name) == following
        keeper.close()
        jobs.close()


def test_progress_is_renewed_within_the_brokers_own_retention(forgetful: KafkaConfig, kafka: RunningKafka) -> None:
    assert offset_renewal.OffsetRenewer(forgetful, "in").interval() == 60 / offset_renewal.RENEWALS_PER_RETENTION
    assert offset_renewal.OffsetRenewer(kafka.config, "in").interval() == offset_renewal.MAX_RENEWAL_INTERVAL_S


def test_a_driver_that_is_fenced_by_one_that_never_claims_goes_on(kafka: RunningKafka) -> None:
    name = job()
    keeper = ClaimWriter(kafka.config, name, "d")
    keeper.take_over(lambda last: CLAIM)
    ClaimProducer(kafka.config, name).close()
    keeper.claim(replace(CLAIM, batch_id=4))
    keeper.close()


def test_a_driver_that_could_not_check_its_claim_again_claims_nothing_before_it_has(
    kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was fenced; a newer driver claims after its first check, it opens another producer, and the second fails."""
    name = job()
    older, newer = ClaimWriter(kafka.config, name, "d"), ClaimWriter(kafka.config, name, "new")
    older.take_over(lambda last: CLAIM)
    ClaimProducer(kafka.config, name).close()
    require_newest, answers = ClaimWriter.require_newest, ["the first check", "no answer"]

    def unavailable(writer: ClaimWriter) -> None:
        answer = answers.pop(0) if writer is older and answers else ""
        if answer == "no answer":
            raise BrokerUnavailable(answer, bootstrap_servers="b:1")
        require_newest(writer)
        if answer:
            newer.take_over(lambda last: replace(CLAIM, driver="new"))

    monkeypatch.setattr(ClaimWriter, "require_newest", unavailable)
    with pytest.raises(BrokerUnavailable):
        older.claim(replace(CLAIM, batch_id=4))
    with pytest.raises(Fenced):
        older.claim(replace(CLAIM, batch_id=4))
    newer.claim(replace(CLAIM, driver="new", batch_id=4))
    older.close()
    newer.close()


def test_a_takeover_is_given_the_newest_claim_once_the_older_driver_is_fenced(kafka: RunningKafka) -> None:
    name = job()
    older = ClaimProducer(kafka.config, name)
    older.claim(CLAIM)
    keeper = ClaimWriter(kafka.config, name, "new")
    seen: list[DriverClaim | None] = []

    def taken(last: DriverClaim | None) -> DriverClaim:
        if not seen:
            ClaimProducer(kafka.config, name).close()  # somebody comes in between, and it is tried again
        seen.append(last)
        return replace(CLAIM, driver="new")

    keeper.take_over(taken)
    assert seen == [CLAIM, CLAIM]
    with pytest.raises(Fenced):
        older.claim(replace(CLAIM, batch_id=4))
    older.close()
    keeper.close()


def test_the_last_claim_about_a_topic_is_kept_while_the_job_reads_another(kafka: RunningKafka) -> None:
    name = job()
    keeper = ClaimWriter(kafka.config, name, "d")
    keeper.take_over(lambda last: CLAIM)
    other = replace(CLAIM, topic="other", topic_id="OTHER")
    keeper.claim(other, CLAIM)
    jobs = JobTopic(kafka.config)
    assert jobs.last_claim(name) == jobs.last_claim(name, "OTHER") == jobs.last_claim(name, "NEW") == other
    assert jobs.last_claim(name, "ID") == CLAIM
    jobs.close()
    keeper.close()
