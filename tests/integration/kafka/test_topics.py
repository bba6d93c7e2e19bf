from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, though not in its __all__
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from wasmline.errors import BrokerUnavailable, InvalidKafkaConfig, KafkaError, TopicNotFound
from wasmline.kafka import CompactedTopic, ConsumerGroups, KafkaConfig, Topics, produce_all
from wasmline.kafka.attempts import ATTEMPT_TIMEOUT_S
from wasmline.kafka.bounded_admin_client import REQUEST_TIMEOUT_S
from wasmline.local import LocalKafka
from wasmline.local.process import wait_until
from wasmline.local.server_properties import SMALL
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition


def unique(what: str = "topic") -> str:
    return f"test-{what}-{uuid.uuid4()}"


def test_a_new_topic_is_described_as_it_was_asked_for(kafka: RunningKafka) -> None:
    topics, name = Topics(kafka.config), unique()
    assert not topics.exists(name)
    topics.create(name, 3, config={"cleanup.policy": "compact"})
    info = topics.describe(name)
    assert (info.name, info.partitions, info.replication) == (name, 3, 1)
    assert topics.exists(name)
    assert topics.brokers() == 1


def test_a_topic_made_again_has_another_id(kafka: RunningKafka) -> None:
    topics, name = Topics(kafka.config), unique()
    topics.create(name, 1)
    first = topics.describe(name).id
    topics.delete([name])
    assert not topics.exists(name)
    topics.create(name, 1)
    assert topics.describe(name).id != first


def test_a_topics_id_fits_into_a_path(kafka: RunningKafka) -> None:
    topics = Topics(kafka.config)
    ids = [topics.describe(kafka.topic()).id for _ in range(10)]  # with the usual alphabet, one of three would not
    assert not set("".join(ids)) & set("+/")


def test_an_existing_topic_is_an_error_unless_it_may_exist(kafka: RunningKafka) -> None:
    topics, name = Topics(kafka.config), unique()
    topics.create(name, 2)
    with pytest.raises(KafkaError, match=f"topic {name} exists already"):
        topics.create(name, 1)
    topics.create(name, 1, exist_ok=True)
    assert topics.describe(name).partitions == 2


def test_a_topic_is_asked_for_again_long_before_its_time_is_over(
    kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, name, limits = Topics(kafka.config), unique(), list[float]()
    create = topics._admin.client.create_topics

    def create_and_lose_first_answer(asked: list[NewTopic], *, request_timeout: float) -> dict[str, Future[None]]:
        limits.append(request_timeout)
        answers: dict[str, Future[None]] = create(asked, request_timeout=request_timeout)
        if len(limits) == 1:
            assert answers[name].result() is None
            answers[name] = Future()
            answers[name].set_exception(KafkaException(Code(Code._TIMED_OUT)))
        return answers

    monkeypatch.setattr(topics._admin.client, "create_topics", create_and_lose_first_answer)
    topics.create(name, 2, exist_ok=True)
    assert topics.describe(name).partitions == 2
    assert limits == [ATTEMPT_TIMEOUT_S] * 2
    topics.create(unique(), 1)  # for which an attempt of its own would exist already
    assert limits[2:] == [REQUEST_TIMEOUT_S]


def test_what_a_broker_refuses_is_reported_in_its_words(kafka: RunningKafka) -> None:
    with pytest.raises(KafkaError, match=r"no\.such\.setting"):
        Topics(kafka.config).create(unique(), 1, config={"no.such.setting": "1"})


def test_an_unknown_topic_is_named(kafka: RunningKafka) -> None:
    topics, name = Topics(kafka.config), unique()
    for ask in (topics.describe, topics.end_offsets, topics.beginning_offsets, lambda name: topics.delete([name])):
        with pytest.raises(TopicNotFound, match=name) as caught:
            ask(name)
        assert caught.value.topic == name


def test_a_topic_says_how_large_a_batch_it_takes(kafka: RunningKafka) -> None:
    topics = Topics(kafka.config)
    assert topics.max_message_bytes(kafka.topic()) == 2**20 + 12
    assert topics.max_message_bytes(kafka.topic(max_message_bytes="2000")) == 2000
    with pytest.raises(TopicNotFound) as caught:
        topics.max_message_bytes("no-such-topic")
    assert caught.value.topic == "no-such-topic"


def test_a_topic_whose_settings_are_hidden_does_not_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SMALL, "authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    monkeypatch.setitem(SMALL, "allow.everyone.if.no.acl.found", "true")
    with LocalKafka(tmp_path) as local:
        config = KafkaConfig({"bootstrap.servers": local.bootstrap_servers})
        for topic in ("open", "hidden"):
            Topics(config).create(topic, 1)
        secret = AclBinding(
            ResourceType.TOPIC, "hidden", ResourcePatternType.LITERAL,
            "User:ANONYMOUS", "*", AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY,
        )  # fmt: skip
        admin = AdminClient(dict(config.properties))
        (made,) = admin.create_acls([secret]).values()
        assert made.result(30) is None
        assert Topics(config).max_message_bytes("open") == 2**20 + 12
        assert Topics(config).max_message_bytes("hidden") is None


@pytest.mark.long
def test_offsets_and_tables_are_read_while_the_only_broker_restarts(tmp_path: Path) -> None:
    def ask() -> None:
        topics, table = Topics(config), CompactedTopic(config, "table")
        while not restarted.is_set():
            with suppress(BrokerUnavailable):  # a slow machine's broker is away for longer than is waited for
                assert topics.end_offsets("table") == {0: 1}
                assert table.read() == {b"key": b"value"}
            restarted.wait(0.02)
        table.close()

    restarted = threading.Event()
    with LocalKafka(tmp_path) as local:
        config = KafkaConfig({"bootstrap.servers": local.bootstrap_servers})
        Topics(config).create("table", 1)
        produce_all(config, "table", [(b"key", b"value", None, None)])
        with ThreadPoolExecutor(1) as thread:
            asked = thread.submit(ask)
            for down in (local.kill_node, local.stop_node):
                down(1)
                local.start_node(1)
                wait_until(asked.done, 3.0)  # a client that has heard of the new epoch looks for the leader anew
            restarted.set()
            asked.result(60.0)


@pytest.mark.long
def test_topics_are_made_and_looked_at_while_the_only_broker_restarts(tmp_path: Path) -> None:
    def ask() -> None:
        topics = Topics(config)
        while not restarted.is_set():
            name = unique()
            with suppress(BrokerUnavailable):
                topics.create(name, 1, exist_ok=True)
                assert topics.settings([name]) is not None
                assert topics.brokers() == 1
            restarted.wait(0.2)  # each topic is opened again by the next start

    restarted = threading.Event()
    with LocalKafka(tmp_path) as local:
        config = KafkaConfig({"bootstrap.servers": local.bootstrap_servers})
        with ThreadPoolExecutor(2) as threads:
            asked = [threads.submit(ask) for _ in range(2)]
            local.kill_node(1)
            local.start_node(1)
            restarted.set()
            for each in asked:
                each.result(60.0)


def test_a_group_is_asked_again_once_the_only_broker_is_back(tmp_path: Path) -> None:
    # librdkafka's issue 4605: a request that has timed out aborts the process when the coordinator is back.
    with LocalKafka(tmp_path) as local:
        config = KafkaConfig({"bootstrap.servers": local.bootstrap_servers})
        Topics(config).create("input", 1)
        ConsumerGroups(config).commit_offsets("group", {TopicPartition("input", 0): 1})
        groups = ConsumerGroups(config, timeout=1.0)
        groups.require_no_members("group")
        local.stop_node(1)
        with pytest.raises(BrokerUnavailable):
            groups.commit_offsets("group", {TopicPartition("input", 0): 2})
        with pytest.raises(BrokerUnavailable):
            groups.require_no_members("group")
        local.start_node(1)
        assert wait_until(partial(_has_committed, groups, "group"), 30.0)
        assert ConsumerGroups(config).committed("group", "input") == {0: 1}  # what was given up is not done later


def _has_committed(groups: ConsumerGroups, group: str) -> bool:
    try:
        groups.commit_offsets(group, {TopicPartition("input", 0): 1})
        groups.require_no_members(group)
    except BrokerUnavailable:
        return False
    return True


def test_offsets_follow_the_records_and_their_times(kafka: RunningKafka) -> None:
    topics, name = Topics(kafka.config), kafka.topic(partitions=1)
    start = 1_700_000_000_000
    produce_all(kafka.config, name, [(None, b"%d" % index, None, start + 1000 * index) for index in range(10)])
    assert topics.beginning_offsets(name) == {0: 0}
    assert topics.end_offsets(name) == {0: 10}
    for special in (-1, -2, -3, -4, -(10**12)):  # the first three are the protocol's latest, earliest and newest
        assert topics.offsets_for_time(name, special) == {0: 0}
    assert topics.offsets_for_time(name, 0) == {0: 0}
    assert topics.offsets_for_time(name, start + 2500) == {0: 3}
    assert topics.offsets_for_time(name, start + 3000) == {0: 3}
    assert topics.offsets_for_time(name, start + 99_000) == {0: 10}


def test_a_cluster_that_is_not_there_is_reported_with_the_reason() -> None:
    nowhere = KafkaConfig({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(BrokerUnavailable, match="Connection refused") as caught:
        Topics(nowhere, timeout=1.0).describe("any")
    assert caught.value.bootstrap_servers == "127.0.0.1:1"
    assert caught.value.retryable


def test_a_setting_that_the_client_does_not_know_is_named() -> None:
    with pytest.raises(InvalidKafkaConfig, match=r"no\.such\.setting") as caught:
        Topics(KafkaConfig({"bootstrap.servers": "127.0.0.1:1", "no.such.setting": "1"}))
    assert caught.value.key == "no.such.setting"


def test_an_administrator_leaves_no_thread_behind(kafka: RunningKafka) -> None:
    Topics(kafka.config).brokers()
    before = threading.active_count()
    for _ in range(5):
        Topics(kafka.config).brokers()
    assert threading.active_count() <= before
