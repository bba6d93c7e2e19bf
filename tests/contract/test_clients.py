"""What the client library on the cluster in memory and the real one on a real Kafka have in common.

The simulation of jobs believes the former; each test here runs on both.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from support.simulation.clients import MemoryAdmin, MemoryConsumer, MemoryOffsetStore, MemoryProducer
from support.simulation.world import World, bind_clocks
from wasmline.consumer.backends.memory.group import Member
from wasmline.consumer.backends.memory.transactional_producer import expire_ids, time_out
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.local import LocalKafka, server_properties
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition

TIMEOUT_S = 30.0
"""Seconds after which something that has to happen counts as missing."""

FENCES = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)

IDS_S, TRANSACTION_S = 3.0, 1.0
"""Seconds that the forgetful broker keeps an idle transactional id, and that its clients' transactions may take."""

FORGETFUL = {
    "transactional.id.expiration.ms": str(int(IDS_S * 1_000)),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "500",
}


class Clients:
    """Clients of one cluster, and what a test does to it from outside."""

    def __init__(self, servers: str) -> None:
        self._settings = {"bootstrap.servers": servers, "log_level": "0"}
        self.offset_store: Any = LibrdkafkaOffsetStore()

    def producer(self, **given: str) -> Any:
        return confluent_kafka.Producer({**self._settings, "linger.ms": "0", **_dotted(given)})

    def consumer(self, group: str, **given: str) -> Any:
        fixed = {"group.id": group, "enable.auto.commit": "false"}
        return confluent_kafka.Consumer({**self._settings, **fixed, **_dotted(given)})

    @cached_property
    def admin(self) -> Any:
        return AdminClient(dict(self._settings))

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(15)

    def cut(self, partition: TopicPartition, before: int) -> None:
        asked = confluent_kafka.TopicPartition(*partition, before)
        for future in self.admin.delete_records([asked]).values():
            future.result(15)

    @contextmanager
    def visited(self, group: str, topic: str) -> Iterator[None]:
        """Let somebody be subscribed with a group."""
        visitor = self.consumer(group)
        visitor.subscribe([topic])
        while not visitor.assignment():
            visitor.poll(0.1)
        yield
        visitor.close()

    def until(self, happened: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 6 * TIMEOUT_S
        while not (found := happened()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        return found

    def forget_ids(self) -> None:
        """Let the time pass in which the broker keeps an idle transactional id."""
        time.sleep(IDS_S + 1)

    def end_transactions(self) -> None:
        """Let the time pass in which a transaction has to end."""
        time.sleep(TRANSACTION_S + 0.5)


class MemoryClients(Clients):
    """Those on the cluster in memory."""

    def __init__(self) -> None:
        super().__init__("memory")
        self.offset_store = MemoryOffsetStore()
        self.world = World()
        self.cluster = self.world.cluster

    def producer(self, **given: str) -> Any:
        return MemoryProducer({**self._settings, **_dotted(given)})

    def consumer(self, group: str, **given: str) -> Any:
        return MemoryConsumer({**self._settings, "group.id": group, **_dotted(given)})

    @cached_property
    def admin(self) -> Any:
        return MemoryAdmin(self._settings)

    def delete(self, topic: str) -> None:
        self.cluster.delete(topic)

    def cut(self, partition: TopicPartition, before: int) -> None:
        self.cluster.delete_records(partition, before)

    @contextmanager
    def visited(self, group: str, topic: str) -> Iterator[None]:
        visitor = Member([topic])
        self.cluster.group(group).join(visitor, self.cluster.partitions)
        yield
        self.cluster.group(group).leave(visitor, self.cluster.partitions)

    def until(self, happened: Callable[[], Any]) -> Any:
        for _ in range(100):
            if found := happened():
                return found
            self.world.runtime.pass_time(1.0)
            self.cluster.expire_offsets(60.0)
        raise AssertionError("it has not happened")

    def forget_ids(self) -> None:
        self.world.runtime.pass_time(IDS_S)
        expire_ids(self.cluster, IDS_S)

    def end_transactions(self) -> None:
        self.world.runtime.pass_time(TRANSACTION_S)
        time_out(self.cluster)


def _dotted(given: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in given.items()}


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Return the address of a broker that forgets soon; it is started at the first call."""
    started: list[LocalKafka] = []

    def servers() -> str:
        if not started:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in FORGETFUL.items():
                    patch.setitem(server_properties.SMALL, name, value)
                started.append(LocalKafka(tmp_path_factory.mktemp("kafka")).__enter__())
        return started[0].bootstrap_servers

    yield servers
    for each in started:
        each.__exit__(None, None, None)


@pytest.fixture(params=["memory", "kafka"])
def clients(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clients:
    if request.param == "memory":
        bind_clocks(monkeypatch)
        return MemoryClients()
    kafka: RunningKafka = request.getfixturevalue("kafka")
    return Clients(kafka.bootstrap_servers)


@pytest.fixture(params=["memory", "kafka"])
def forgetting(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, forgetful: Callable[[], str]
) -> Clients:
    if request.param == "memory":
        bind_clocks(monkeypatch)
        return MemoryClients()
    return Clients(forgetful())


def new_topic(clients: Clients, partitions: int = 1, *, name: str | None = None, **config: str) -> str:
    name = name or f"test-{uuid.uuid4()}"
    clients.admin.create_topics([NewTopic(name, partitions, 1, config=_dotted(config))])[name].result(15)
    clients.until(lambda: identity(clients, name))
    return name


def identity(clients: Clients, topic: str) -> str | None:
    """Return a topic's id, or None where it is not there."""
    try:
        described = clients.admin.describe_topics(TopicCollection([topic]))[topic].result(15)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None
    return str(described.topic_id)


def name() -> str:
    return f"name-{uuid.uuid4()}"


def opened(clients: Clients, transactional_id: str, **given: str) -> Any:
    """Return a producer of an id that has fenced those before it."""
    producer = clients.producer(transactional_id=transactional_id, **given)
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Any, topic: str, *values: bytes) -> None:
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def end(clients: Clients, topic: str, isolation: IsolationLevel) -> int:
    place = confluent_kafka.TopicPartition(topic, 0)
    latest = {place: OffsetSpec.latest()}  # type: ignore[no-untyped-call]
    return int(clients.admin.list_offsets(latest, isolation_level=isolation)[place].result(15).offset)


def begin(clients: Clients, topic: str) -> int:
    place = confluent_kafka.TopicPartition(topic, 0)
    earliest = {place: OffsetSpec.earliest()}  # type: ignore[no-untyped-call]

    def found() -> int | None:
        try:
            return int(clients.admin.list_offsets(earliest)[place].result(15).offset)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError.UNKNOWN_LEADER_EPOCH:
                raise
            return None  # of a topic that was created again: the client knows the epoch of the earlier one

    return int(clients.until(lambda: [] if (offset := found()) is None else [offset])[0])


def committed(clients: Clients, group: str, topic: str) -> int:
    """Return what a plain read says is committed of the first partition."""
    consumer = clients.consumer(group, isolation_level="read_uncommitted")
    (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=TIMEOUT_S)
    consumer.close()
    return int(found.offset)


def alter(clients: Clients, group: str, topic: str, offset: int) -> int | None:
    """Commit as the admin client; return the code with which that is refused."""
    codes: list[int | None] = []

    def is_loaded() -> bool:
        try:
            codes.append(_alter(clients, group, topic, offset))
        except TimeoutError:
            return False  # of a busy machine
        return codes[-1] not in (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR)

    clients.until(is_loaded)
    return codes[-1]


def _alter(clients: Clients, group: str, topic: str, offset: int) -> int | None:
    asked = [ConsumerGroupTopicPartitions(group, [confluent_kafka.TopicPartition(topic, 0, offset)])]
    try:
        answer = clients.admin.alter_consumer_group_offsets(asked)[group].result(15)
    except KafkaException as error:
        return int(error.args[0].code())
    errors = [each.error.code() for each in answer.topic_partitions if each.error is not None]
    return errors[0] if errors else None


def values(clients: Clients, topic: str, begin: int = 0, **given: str) -> list[Any]:
    """Return what a reader from an offset on gets up to the end: values, and the codes of what it is told."""
    consumer = clients.consumer(name(), enable_partition_eof="true", **given)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, begin)])
    found: list[Any] = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is None:
            found.append(message.value())
        elif message.error().code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
        else:
            consumer.close()
            return [*found, message.error().code()]


def code(call: Callable[[], Any]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        call()
    error: KafkaError = caught.value.args[0]
    return error


def test_an_open_transaction_hides_its_records_and_all_that_follow(clients: Clients) -> None:
    topic = new_topic(clients)
    producer, plain = opened(clients, name()), clients.producer()
    producer.begin_transaction()
    write(producer, topic, b"first")
    write(plain, topic, b"second")
    assert values(clients, topic) == []
    assert values(clients, topic, isolation_level="read_uncommitted") == [b"first", b"second"]
    assert end(clients, topic, IsolationLevel.READ_COMMITTED) == 0
    assert end(clients, topic, IsolationLevel.READ_UNCOMMITTED) == 2
    producer.commit_transaction(TIMEOUT_S)
    clients.until(lambda: end(clients, topic, IsolationLevel.READ_COMMITTED) == 3)
    assert values(clients, topic) == [b"first", b"second"]


def test_who_opens_an_id_aborts_what_is_open_and_fences_who_had_it(clients: Clients) -> None:
    topic, identifier, group = new_topic(clients), name(), name()
    partition = TopicPartition(topic, 0)
    older = opened(clients, identifier)
    older.begin_transaction()
    write(older, topic, b"older")
    clients.offset_store.send_offsets(
        older, clients.consumer(group).consumer_group_metadata(), {partition: CommittedOffset(7)}
    )
    newer = opened(clients, identifier)
    assert clients.offset_store.committed(clients.consumer(group), [partition]) == {}
    newer.begin_transaction()
    write(newer, topic, b"newer")
    newer.commit_transaction(TIMEOUT_S)
    error = code(lambda: older.commit_transaction(TIMEOUT_S))
    assert error.code() in FENCES
    assert error.fatal()
    assert code(older.begin_transaction).fatal()
    clients.until(lambda: values(clients, topic) == [b"newer"])


def test_a_transaction_that_was_aborted_leaves_its_producer_usable(clients: Clients) -> None:
    topic = new_topic(clients)
    producer = opened(clients, name())
    producer.begin_transaction()
    write(producer, topic, b"aborted")
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    write(producer, topic, b"committed")
    producer.commit_transaction(TIMEOUT_S)
    clients.until(lambda: values(clients, topic) == [b"committed"])


def test_a_record_that_is_refused_fails_its_transaction(clients: Clients) -> None:
    topic = new_topic(clients, max_message_bytes="1000")
    producer = opened(clients, name())
    producer.begin_transaction()
    producer.produce(topic, b"small", partition=0)
    producer.flush(TIMEOUT_S)
    producer.produce(topic, b"x" * 2_000, partition=0)
    error = code(lambda: producer.commit_transaction(TIMEOUT_S))
    assert error.txn_requires_abort()
    assert not error.fatal()
    producer.abort_transaction(TIMEOUT_S)
    assert values(clients, topic) == []


def test_a_transaction_whose_records_are_purged_is_not_committed(clients: Clients) -> None:
    topic = new_topic(clients)
    producer = opened(clients, name(), linger_ms="10000")
    producer.begin_transaction()
    write(producer, topic, b"kept")
    producer.produce(topic, b"purged", partition=0)
    producer.purge()
    error = code(lambda: producer.commit_transaction(TIMEOUT_S))
    assert error.txn_requires_abort()
    assert not error.fatal()
    producer.abort_transaction(TIMEOUT_S)
    assert values(clients, topic) == []


def test_offsets_in_an_open_transaction_are_waited_for_by_stable_reads_only(clients: Clients) -> None:
    topic, group = new_topic(clients), name()
    partition = TopicPartition(topic, 0)
    stable = clients.consumer(group, isolation_level="read_committed")
    clients.offset_store.commit(stable, {partition: CommittedOffset(1, "map")})
    producer = opened(clients, name())
    producer.begin_transaction()
    clients.offset_store.send_offsets(producer, stable.consumer_group_metadata(), {partition: CommittedOffset(2)})
    error = code(lambda: clients.offset_store.committed(stable, [partition], 0.5))
    assert error.code() == KafkaError._TIMED_OUT
    hasty = clients.consumer(group, isolation_level="read_uncommitted")
    assert clients.offset_store.committed(hasty, [partition]) == {partition: CommittedOffset(1, "map")}
    assert committed(clients, group, topic) == 1
    producer.commit_transaction(TIMEOUT_S)
    assert clients.offset_store.committed(stable, [partition], TIMEOUT_S) == {partition: CommittedOffset(2)}


def test_beside_members_offsets_are_taken_from_transactions_only(clients: Clients) -> None:
    topic, group = new_topic(clients), name()
    partition = TopicPartition(topic, 0)
    stranger = clients.consumer(group)
    with clients.visited(group, topic):
        assert alter(clients, group, topic, 5) == KafkaError.UNKNOWN_MEMBER_ID
        error = code(lambda: clients.offset_store.commit(stranger, {partition: CommittedOffset(5)}))
        assert error.code() == KafkaError.UNKNOWN_MEMBER_ID
        producer = opened(clients, name())
        producer.begin_transaction()
        clients.offset_store.send_offsets(producer, stranger.consumer_group_metadata(), {partition: CommittedOffset(6)})
        producer.commit_transaction(TIMEOUT_S)
        described = clients.admin.describe_consumer_groups([group])[group].result(15)
        assert len(described.members) == 1
    assert clients.offset_store.committed(stranger, [partition]) == {partition: CommittedOffset(6)}
    assert clients.admin.describe_consumer_groups([group])[group].result(15).members == []
    assert alter(clients, group, topic, 5) is None


def test_a_group_tells_whether_it_ever_had_members(clients: Clients) -> None:
    topic, group = new_topic(clients), name()
    assert alter(clients, group, topic, 1) is None
    simple = clients.admin.describe_consumer_groups([group])[group].result(15)
    assert (simple.type.name, simple.is_simple_consumer_group) == ("CLASSIC", True)
    consumer, given = clients.consumer(group, client_id="known"), []
    consumer.subscribe([topic], on_assign=lambda _, partitions: given.append(partitions))
    clients.until(lambda: consumer.poll(0.1) or given)
    [member] = clients.admin.describe_consumer_groups([group])[group].result(15).members
    assert member.client_id == "known"
    consumer.close()
    emptied = clients.admin.describe_consumer_groups([group])[group].result(15)
    assert (emptied.members, emptied.is_simple_consumer_group) == ([], False)
    assert committed(clients, group, topic) == 1


def test_a_map_that_is_too_large_is_refused(clients: Clients) -> None:
    topic, group = new_topic(clients), name()
    partition = TopicPartition(topic, 0)
    consumer = clients.consumer(group)
    error = code(lambda: clients.offset_store.commit(consumer, {partition: CommittedOffset(1, "x" * 4_097)}))
    assert error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert clients.offset_store.committed(consumer, [partition]) == {}


def test_what_retention_removed_is_below_the_begin_and_out_of_range(clients: Clients) -> None:
    topic = new_topic(clients)
    write(clients.producer(), topic, b"0", b"1", b"2", b"3")
    clients.cut(TopicPartition(topic, 0), 2)
    assert begin(clients, topic) == 2
    earliest = confluent_kafka.TopicPartition(topic, 0, OFFSET_BEGINNING)
    assert [each.offset for each in clients.consumer(name()).offsets_for_times([earliest], timeout=TIMEOUT_S)] == [2]
    assert end(clients, topic, IsolationLevel.READ_COMMITTED) == 4
    assert values(clients, topic, 1, auto_offset_reset="earliest") == [b"2", b"3"]
    assert values(clients, topic, 1, auto_offset_reset="latest") == []
    assert values(clients, topic, 1, auto_offset_reset="error") == [KafkaError._AUTO_OFFSET_RESET]


def test_a_topic_made_anew_has_another_id_and_none_of_its_old_offsets(clients: Clients) -> None:
    topic, group = new_topic(clients), name()
    write(clients.producer(), topic, b"old", b"old")
    assert alter(clients, group, topic, 2) is None
    before = identity(clients, topic)
    clients.delete(topic)
    clients.until(lambda: identity(clients, topic) is None)
    new_topic(clients, name=topic)
    assert identity(clients, topic) != before
    assert (begin(clients, topic), end(clients, topic, IsolationLevel.READ_COMMITTED)) == (0, 0)
    assert committed(clients, group, topic) == OFFSET_INVALID


def test_a_topic_is_created_once(clients: Clients) -> None:
    topic = new_topic(clients)
    answer = clients.admin.create_topics([NewTopic(topic, 1, 1)])[topic]
    assert code(lambda: answer.result(15)).code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(forgetting: Clients) -> None:
    topic = new_topic(forgetting)
    producer = opened(forgetting, name(), transaction_timeout_ms=str(int(TRANSACTION_S * 1_000)))
    producer.begin_transaction()
    write(producer, topic, b"late")
    forgetting.end_transactions()
    error = code(lambda: producer.commit_transaction(TIMEOUT_S))
    assert error.code() in FENCES
    assert error.fatal()
    assert values(forgetting, topic) == []


def test_an_idle_transactional_id_is_forgotten_and_its_producer_cannot_go_on(forgetting: Clients) -> None:
    topic, identifier = new_topic(forgetting), name()
    producer = opened(forgetting, identifier)
    producer.begin_transaction()
    write(producer, topic, b"first")
    producer.commit_transaction(TIMEOUT_S)
    forgetting.forget_ids()
    producer.begin_transaction()
    producer.produce(topic, b"lost", partition=0)
    error = code(lambda: producer.commit_transaction(TIMEOUT_S))
    assert error.code() == KafkaError.INVALID_PRODUCER_ID_MAPPING
    another = opened(forgetting, identifier)
    another.begin_transaction()
    write(another, topic, b"second")
    another.commit_transaction(TIMEOUT_S)
    forgetting.until(lambda: values(forgetting, topic) == [b"first", b"second"])


@pytest.mark.long  # a broker keeps offsets for a minute
def test_offsets_expire_by_their_age_or_where_there_were_members_by_that_of_their_leaving(forgetting: Clients) -> None:
    topic = new_topic(forgetting)
    lonely, visited = name(), name()
    assert alter(forgetting, lonely, topic, 1) is None
    with forgetting.visited(visited, topic):
        pass
    assert alter(forgetting, visited, topic, 1) is None

    renewed_until = time.monotonic() + 45  # ends before they are gone: a group that begins anew had no member

    def is_gone() -> bool:
        if committed(forgetting, visited, topic) < 0:
            return True
        assert alter(forgetting, lonely, topic, 1) is None
        if time.monotonic() < renewed_until:
            assert alter(forgetting, visited, topic, 1) is None
        return False

    forgetting.until(is_gone)
    assert committed(forgetting, lonely, topic) == 1
    forgetting.until(lambda: committed(forgetting, lonely, topic) < 0)
