"""A process whose Kafka client is not the one that the driver has tested."""

from __future__ import annotations

import socket
import time

import pytest

from wasmline.consumer import ConsumerOptions
from wasmline.errors import ReleaseMismatch
from wasmline.job_specs import JobSpec, StreamSpec
from wasmline.kafka import KafkaConfig, committed_offset_store
from wasmline.kafka.librdkafka_ctypes import CLIENT
from wasmline.leases.lease_planner import LeasePlanner, LeaseRound, PlannerConfig
from wasmline.leases.manual_backend import ManualBackend, PartitionAssignment
from wasmline.spark.microbatch.transactional_batches import TaskTransactions

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


def use(client: str, *, keeps_maps: bool = True) -> None:
    """Begin a lease whose driver has tested a client."""
    assignment = PartitionAssignment(
        progress={}, followed={}, follow=lambda record: None, held=lambda: True, require_owner=lambda: None,
        keeps_maps=keeps_maps, client=client,
    )  # fmt: skip
    ManualBackend(ConsumerOptions(topics=("t",), group_id="g", kafka=NOWHERE), assignment)


def test_a_release_that_is_known_need_not_be_the_driver_s() -> None:
    use("0.0.9")


def test_another_untested_client_than_the_driver_s_begins_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_offset_store, "KNOWN_CLIENTS", ())
    use(CLIENT)
    use("0.0.9", keeps_maps=False)
    expected = rf"driver has tested confluent-kafka 0\.0\.9, and {socket.gethostname()} has {CLIENT}: install one"
    with pytest.raises(ReleaseMismatch, match=expected) as caught:
        use("0.0.9")
    assert (caught.value.driver, caught.value.executor) == ("0.0.9", CLIENT)


def test_another_untested_client_than_the_driver_s_plans_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_offset_store, "KNOWN_CLIENTS", ())
    with pytest.raises(ReleaseMismatch):
        planner("0.0.9").next(LeaseRound())


def test_another_untested_client_than_the_driver_s_opens_no_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed_offset_store, "KNOWN_CLIENTS", ())
    writing = TaskTransactions(
        config="{}", group="g", transactional_id="i", compression="none", batch_bytes=1, topics=(), client="0.0.9"
    )
    with pytest.raises(ReleaseMismatch):
        writing.transactions()


def test_a_lease_names_the_client_that_its_driver_has_tested() -> None:
    planning = planner("0.0.9")
    planned_round = LeaseRound(epoch=1, tasks=1, progress={0: 5})
    job = JobSpec(job="j", run="r", storage="s", stream=StreamSpec(transform="t", mode="parallel"))
    planning._newest = planned_round, job, None
    [lease] = planning.leases(planned_round)
    assert lease.client == "0.0.9"
    assert lease.until > time.time()


def planner(client: str) -> LeasePlanner:
    planned = PlannerConfig(job="j", run="r", driver="d", checkpoint="c", topic="t", slots=1, client=client)
    return LeasePlanner(KafkaConfig(NOWHERE), planned, "t")
