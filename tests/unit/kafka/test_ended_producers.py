"""Writers of records after an error that their producer does not survive."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from weakref import ref

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from support.mock_cluster import ADD_PARTITIONS, END_TXN, INIT_PRODUCER_ID, PRODUCE, TOPIC, MockCluster, lent_cluster
from wasmline.consumer import Output
from wasmline.consumer.backends.kafka.producer_batch_limiter import ProducerBatchLimiter, TopicLimits
from wasmline.consumer.backends.kafka.sink import KafkaSink
from wasmline.consumer.backends.kafka.transaction_settings import PRODUCER_SETTINGS
from wasmline.consumer.backends.kafka.transactions import KafkaTransactions, OpenTransactionalId
from wasmline.errors import BrokerUnavailable, Fenced, NotAuthorized, ProducerFenced, WasmlineError
from wasmline.job_offsets import batch_outputs, microbatch_transactions
from wasmline.job_offsets.batch_outputs import BatchOutputs
from wasmline.job_offsets.exactly_once_task import outputs_and_topics
from wasmline.job_offsets.microbatch_transactions import BatchTransactions
from wasmline.kafka import RecordWriter, compacted_topic, reconnecting_clients
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.kafka.compacted_topic import TopicRecord, TransactionalWriter
from wasmline.kafka.producer import Record, producer
from wasmline.kafka.reconnecting_clients import ReconnectingProducer
from wasmline.kafka.transactional_producer import init_transactions, transactional_producer
from wasmline.local.process import wait_until
from wasmline.pipeline.transform_runner import PLACED_SCHEMA
from wasmline.topic_partitions import CommittedOffset, TopicPartition

FENCED_S = 0.2
"""Seconds within which a producer hears that it is fenced."""

DENIAL_S = 10.0
"""Seconds within which a producer that is denied has ended."""

DISCARDED_S = 30.0

DISCARD = f"""
import os
import threading
from support.mock_cluster import TOPIC, MockCluster
from wasmline.kafka.producer import producer

cluster, is_held = MockCluster(), threading.Event()
client = producer(cluster.config, debug="protocol")


def hold(text):
    if "Sent ProduceRequest" in text:
        is_held.set()
        threading.Event().wait({4 * DISCARDED_S})


with cluster.logging_to(client, hold):
    client.produce(TOPIC, b"value")
    assert is_held.wait({DISCARDED_S})
    client.discard()
    os._exit(0)  # the thread of the client is in Python yet
"""

OUTPUTS = pa.RecordBatch.from_pylist(
    [
        {"topic": TOPIC, "key": b"key", "value": value, "headers": [], "timestamp": 1, "partition": 0, "offset": 1}
        for value in (b"1", b"2", b"3")
    ],
    schema=PLACED_SCHEMA,
)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    yield from lent_cluster()


@pytest.fixture
def without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sinks not ask for a topic's settings: the mock cluster does not answer that."""
    monkeypatch.setattr(ProducerBatchLimiter, "_read_limits", lambda limiter, topic: TopicLimits())


def test_a_client_that_may_write_to_no_topic_is_told_so_and_writes_once_it_may(cluster: MockCluster) -> None:
    records: list[Record] = [(b"key", value, [], None) for value in (b"1", b"2")]
    with closing(RecordWriter(cluster.config)) as writer:
        for _ in range(2):
            cluster.deny(INIT_PRODUCER_ID)
            with pytest.raises(NotAuthorized, match=f"to use topic {TOPIC}: grant its user an ACL on it"):
                writer.write(TOPIC, records)
        assert writer.write(TOPIC, records) == 2


@pytest.mark.usefixtures("without_limits")
def test_outputs_and_polls_of_a_producer_that_has_ended_say_why(cluster: MockCluster) -> None:
    answers = list[Exception | None]()
    cluster.deny(INIT_PRODUCER_ID)
    with closing(KafkaSink(cluster.config)) as sink:
        sink.write(Output(TOPIC, b"1"), answers.append)
        with pytest.raises(NotAuthorized, match="does not permit this"):
            poll_for(DENIAL_S, sink)
        sink.write(Output(TOPIC, b"2"), answers.append)
        assert sink.flush(DENIAL_S) == 0
    assert [type(each) for each in answers] == [NotAuthorized] * 2


@pytest.mark.usefixtures("without_limits")
def test_outputs_that_a_producer_that_ends_is_flushed_with_say_why(cluster: MockCluster) -> None:
    answers = list[Exception | None]()
    cluster.deny(INIT_PRODUCER_ID)
    with closing(KafkaSink(cluster.config)) as sink:
        for number in range(5):
            sink.write(Output(TOPIC, b"%d" % number), answers.append)
        with pytest.raises(NotAuthorized, match="does not permit this"):
            sink.flush(DENIAL_S)
        assert sink.flush(DENIAL_S) == 0
    assert [type(each) for each in answers] == [NotAuthorized] * 5


@pytest.mark.usefixtures("without_limits")
def test_a_sink_that_is_closed_after_its_producer_has_ended_says_why(cluster: MockCluster) -> None:
    cluster.deny(INIT_PRODUCER_ID)
    sink = KafkaSink(cluster.config)
    sink.write(Output(TOPIC, b"1"), lambda error: None)
    assert has_ended(sink._producer)
    with pytest.raises(NotAuthorized, match="does not permit this"):
        sink.close()


@pytest.mark.parametrize("compiles", [True, False], ids=["compiled", "messages"])
def test_outputs_of_a_micro_batch_whose_producer_ends_say_why(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, compiles: bool
) -> None:
    monkeypatch.setattr(batch_outputs, "_producers", {})
    if not compiles:
        monkeypatch.setattr(batch_outputs, "compiled_columns", lambda: None)

    def write(*, again: bool) -> None:
        with BatchOutputs(cluster.config.to_json(), "none", 100_000) as writing:
            writing.write(OUTPUTS)
            if again:
                assert has_ended(writing._client)
                writing.write(OUTPUTS)

    for again in (False, True):
        cluster.deny(INIT_PRODUCER_ID)
        with pytest.raises(NotAuthorized, match=f"to use topic {TOPIC}: grant its user an ACL on it"):
            write(again=again)


def test_a_micro_batch_whose_producer_has_ended_is_told_why_however_slow_its_client_is(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_offsets = LibrdkafkaOffsetStore.send_offsets

    def slowly(*arguments: Any) -> None:
        time.sleep(1.5)
        send_offsets(*arguments)

    monkeypatch.setattr(LibrdkafkaOffsetStore, "send_offsets", slowly)

    def write() -> None:
        with (
            closing(BatchTransactions(cluster.config, "group", "prefix", {})) as transactions,
            transactions.open([TopicPartition(TOPIC, 0)]) as transaction,
        ):
            transaction._client.abort_transaction()
            transaction.write(*outputs_and_topics(OUTPUTS))

    with pytest.raises(WasmlineError, match="not valid in state Ready"):
        write()


@pytest.mark.parametrize(
    ("error", "code", "is_fenced"),
    [
        (ValueError, KafkaError.NO_ERROR, False),
        (ValueError, None, True),
        (ValueError, KafkaError.UNKNOWN, True),
        (ValueError, KafkaError.INVALID_TXN_STATE, True),
        (ValueError, KafkaError.PRODUCER_FENCED, False),
        (ProducerFenced, None, False),
        (Fenced, None, False),
    ],
    ids=["done", "not answered", "permanent", "fatal", "fenced", "fenced before", "a newer driver"],
)
def test_the_transaction_of_a_micro_batch_that_could_not_abort_is_ended_by_a_fence(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, error: type[Exception], code: int | None, is_fenced: bool
) -> None:
    fences = list[Sequence[TopicPartition]]()
    monkeypatch.setattr(microbatch_transactions, "ABORT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(BatchTransactions, "fence", lambda _, partitions: fences.append(partitions))

    def fail() -> None:
        with (
            closing(BatchTransactions(cluster.config, "group", "prefix", {})) as transactions,
            transactions.open([TopicPartition(TOPIC, 0)]) as transaction,
        ):
            transaction.write(*outputs_and_topics(OUTPUTS))
            assert transaction._client.flush(DENIAL_S) == 0
            if code is None:
                cluster.ignore(END_TXN)
            else:
                cluster.fail(END_TXN, code)
            raise Fenced("broken", job="job") if error is Fenced else error("broken")

    with pytest.raises(error, match="broken"):
        fail()
    assert fences == [[TopicPartition(TOPIC, 0)]] * is_fenced


def test_a_micro_batch_that_is_interrupted_while_it_ends_aborts_its_transaction(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: ReconnectingProducer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ReconnectingProducer, "discard", interrupt)
    transactions = BatchTransactions(cluster.config, "group", "prefix", {})
    transaction = transactions.open([TopicPartition(TOPIC, 0)])
    with pytest.raises(KeyboardInterrupt), transaction:
        raise ValueError("the guest is broken")
    transaction._client.begin_transaction()  # refused while one is open


def test_the_client_of_a_writer_that_could_not_abort_is_freed(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted_topic, "ABORT_TIMEOUT_S", 0.2)
    clients = list[ref[ReconnectingProducer]]()

    def refuse() -> list[TopicRecord]:
        cluster.ignore(END_TXN)
        raise ValueError("it is not wanted any more")

    def write() -> None:
        with closing(TransactionalWriter(cluster.config, TOPIC, "writer")) as writer:
            clients.append(ref(writer._producer))
            writer.write({b"key": b"1"}, before_commit=refuse)

    with pytest.raises(ValueError, match="not wanted"):
        write()
    gc.collect()
    assert wait_until(lambda: clients[0]() is None, DENIAL_S)


def test_callbacks_of_records_in_flight_are_told_as_these_are_dropped(cluster: MockCluster) -> None:
    told = list[KafkaError | None]()
    with closing(producer(cluster.config, **{"linger.ms": "0"})) as client:
        cluster.ignore(PRODUCE)
        client.produce(TOPIC, b"value", on_delivery=lambda error, _: told.append(error))
        client.poll(0.8)
        client.discard()
        assert len(told) == 1


def test_a_discard_waits_for_no_thread_of_the_client(tmp_path: Path) -> None:
    """Such as one that looks a name up. In a process of its own: a purge that waits stops all of Python."""
    path = os.pathsep.join(sys.path)
    command = [sys.executable, "-P", "-c", DISCARD]
    subprocess.run(command, check=True, timeout=2 * DISCARDED_S, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})


def interrupted_after(records: Sequence[Record], seconds: float) -> Iterator[Record]:
    yield from records
    time.sleep(seconds)
    raise KeyboardInterrupt


def test_a_write_after_one_that_was_interrupted_has_its_own_result_only(cluster: MockCluster) -> None:
    record: Record = (b"key", b"value", [], None)
    with closing(RecordWriter(cluster.config)) as writer:
        assert writer.write(TOPIC, [record]) == 1
        cluster.ignore(PRODUCE)
        with pytest.raises(KeyboardInterrupt):
            writer.write(TOPIC, interrupted_after([record], 0.5))
        writer.close()
        assert writer.write(TOPIC, [record]) == 1


def test_a_writer_writes_again_where_the_release_of_its_client_is_not_known(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnecting_clients, "_librdkafka", lambda: None)
    with closing(RecordWriter(cluster.config)) as writer:
        cluster.deny(INIT_PRODUCER_ID)
        with pytest.raises(WasmlineError):
            writer.write(TOPIC, [(b"key", b"1", [], None)])
        assert writer.write(TOPIC, [(b"key", b"1", [], None)]) == 1


def test_a_topic_that_is_denied_to_the_records_before_a_commit_is_named(cluster: MockCluster) -> None:
    with closing(TransactionalWriter(cluster.config, "control", "writer")) as writer:
        cluster.deny(ADD_PARTITIONS)
        with pytest.raises(NotAuthorized, match=f"to use topic control or {TOPIC}: grant its user an ACL on it"):
            writer.write({}, before_commit=lambda: [TopicRecord(TOPIC, b"key", b"1")])


def test_a_transaction_whose_batch_came_before_one_that_was_refused_for_a_moment_can_be_tried_again(
    cluster: MockCluster,
) -> None:
    settings = {"batch.num.messages": "1"}
    with closing(TransactionalWriter(cluster.config, "control", "writer", settings=settings)) as writer:
        codes = KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
        cluster.fail(PRODUCE, *codes, delay_ms=1_000)  # both are sent before the first answer
        with pytest.raises(BrokerUnavailable, match="skipped sequence numbers"):
            writer.write({}, [TopicRecord(TOPIC, b"key", b"%d" % number) for number in range(3)])


@pytest.mark.usefixtures("without_limits")
def test_producers_that_have_ended_are_freed(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_outputs, "_producers", {})
    freed = [ref(client) for use in (write_records, write_outputs, write_columns) for client in use(cluster)]
    gc.collect()
    assert wait_until(lambda: not any(each() for each in freed), DENIAL_S)


@pytest.mark.usefixtures("without_limits")
def test_a_transaction_that_is_fenced_between_two_outputs_is_freed(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_for_fence(*_: object) -> bool:
        time.sleep(FENCED_S)
        return True

    monkeypatch.setattr(ProducerBatchLimiter, "flush_if_full", wait_for_fence)
    client, work = fence(cluster)
    gc.collect()
    assert wait_until(lambda: client() is None and work() is None, DENIAL_S)


class Work(dict[TopicPartition, tuple[Sequence[Output], CommittedOffset]]):
    """What a transaction commits, to which there may be weak references."""


def fence(cluster: MockCluster) -> tuple[ref[ReconnectingProducer], ref[Work]]:
    """Fence a producer within its transaction, and return it with what it was to commit."""
    source, store = SimpleNamespace(group="group"), SimpleNamespace(send_offsets=lambda *_: None)
    store.on = lambda producer: store
    transactions = KafkaTransactions(cluster.config, "prefix", cast(Any, source), cast(Any, store), is_safe=True)
    client = transactional_producer(cluster.config, "prefix-0", {**PRODUCER_SETTINGS, "linger.ms": "0"})
    init_transactions(client, time.monotonic() + DENIAL_S)
    work = Work({TopicPartition("in", 0): ([Output(TOPIC, b"%d" % number) for number in range(4)], CommittedOffset(1))})
    cluster.fail(ADD_PARTITIONS, KafkaError.PRODUCER_FENCED)
    claim = OpenTransactionalId(client, {})
    error, is_usable = transactions._run_transaction(client, claim, work, None, time.monotonic() + DENIAL_S)
    claim.abandon_producer()
    assert (type(error), is_usable) == (ProducerFenced, False)
    return ref(client), ref(work)


def write_records(cluster: MockCluster) -> list[ReconnectingProducer]:
    """Write to a producer that ends, and return it."""
    cluster.deny(INIT_PRODUCER_ID)
    with closing(RecordWriter(cluster.config)) as writer:
        client = writer._producer
        with pytest.raises(NotAuthorized):
            writer.write(TOPIC, [(b"key", b"%d" % number, [], None) for number in range(5)])
        with pytest.raises(RuntimeError, match="closed"):
            client.poll(0)
    return [client]


def write_outputs(cluster: MockCluster) -> list[ReconnectingProducer]:
    cluster.deny(INIT_PRODUCER_ID)
    sink = KafkaSink(cluster.config)
    for number in range(5):
        sink.write(Output(TOPIC, b"%d" % number), lambda error: None)
    assert has_ended(sink._producer)
    with pytest.raises(NotAuthorized):
        sink.close()
    return [sink._producer]


def write_columns(cluster: MockCluster) -> list[ReconnectingProducer]:
    cluster.deny(INIT_PRODUCER_ID)
    with pytest.raises(NotAuthorized), BatchOutputs(cluster.config.to_json(), "none", 100_000) as writing:
        writing.write(OUTPUTS)
    return [writing._client]


def has_ended(client: ReconnectingProducer) -> bool:
    return wait_until(lambda: client.fatal_error() is not None, DENIAL_S)


def poll_for(seconds: float, sink: KafkaSink) -> None:
    """Poll all the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        sink.poll()
        time.sleep(0.01)
