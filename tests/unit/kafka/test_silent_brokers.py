"""A broker that does not answer: its requests are repeated long before a record times out, and not all the time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # public, though not in its __all__

from support.mock_cluster import FETCH, METADATA, PRODUCE, TIMEOUT_S, TOPIC, MockCluster, lent_cluster
from wasmline.errors import BrokerUnavailable, WasmlineError
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.kafka import KafkaConfig, Topics, attempts, produce_all, producer, reconnecting_clients
from wasmline.kafka.attempts import ATTEMPT_TIMEOUT_S, Attempts
from wasmline.kafka.bounded_admin_client import BoundedAdminClient
from wasmline.kafka.detached_consumer import detached_consumer
from wasmline.kafka.list_offsets import list_offsets
from wasmline.kafka.reconnecting_clients import ReconnectingClient, ReconnectingProducer

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    yield from lent_cluster()


def test_a_record_is_written_although_the_broker_ignored_it(cluster: MockCluster) -> None:
    client = producer(cluster.config)
    client.produce(TOPIC, b"first")
    assert client.flush(TIMEOUT_S) == 0
    cluster.ignore(PRODUCE)
    errors: list[object] = []
    client.produce(TOPIC, b"second", on_delivery=lambda error, _: errors.append(error))
    assert client.flush(TIMEOUT_S) == 0
    assert errors == [None]


def test_a_record_is_read_although_the_broker_ignored_a_fetch(cluster: MockCluster) -> None:
    produce_all(cluster.config, TOPIC, [(None, b"first", None, None)])
    client = detached_consumer(cluster.config, "group")
    client.assign([TopicPartition(TOPIC, 0, 0)])
    assert client.poll(TIMEOUT_S)
    cluster.ignore(FETCH)
    produce_all(cluster.config, TOPIC, [(None, value, None, None) for value in (b"second", b"third")])
    read = [client.poll(TIMEOUT_S) for _ in range(2)]
    assert [message and message.value() for message in read] == [b"second", b"third"]


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT])
def test_metadata_is_asked_for_again_long_before_its_time_is_over(cluster: MockCluster, code: int) -> None:
    """librdkafka repeats a request to the broker that it has chosen, for as long as that is dead."""
    limits = list[float]()

    class ProducerOfDeadBroker(Producer):
        def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
            limits.append(timeout)
            if len(limits) == 1:
                raise KafkaException(KafkaError(code))
            return super().list_topics(topic, timeout)

    class Reconnecting(ReconnectingClient, ProducerOfDeadBroker):
        """Has the method of ReconnectingClient in front of that one."""

    client = Reconnecting(cluster.config.client())
    assert client.list_topics(TOPIC, timeout=TIMEOUT_S).brokers
    assert limits == [ATTEMPT_TIMEOUT_S] * 2


def test_metadata_that_takes_longer_than_an_attempt_is_read_by_a_later_one(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "ATTEMPT_TIMEOUT_S", 0.2)
    cluster.fail(METADATA, *[KafkaError.NO_ERROR] * 100, delay_ms=500)
    assert ReconnectingProducer(cluster.config.client()).list_topics(timeout=TIMEOUT_S).brokers
    assert BoundedAdminClient(cluster.config, TIMEOUT_S).brokers() == [1]


def test_metadata_that_nobody_answers_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ReconnectingProducer(KafkaConfig(NOBODY).client())
    monkeypatch.setattr(attempts, "ATTEMPT_TIMEOUT_S", 0.2)
    limits = metadata_limits(client, monkeypatch)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.6)
    assert limits == [0.2, pytest.approx(0.3), pytest.approx(0.1, abs=0.1)]


def metadata_limits(client: ReconnectingClient, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time limits of the client's requests for metadata from now on, as they are made."""
    ask, limits = client.list_topics_once, list[float]()

    def noted(topic: str | None, limit: float) -> object:
        limits.append(limit)
        return ask(topic, limit)

    monkeypatch.setattr(client, "list_topics_once", noted)
    return limits


@pytest.mark.parametrize("learns", [False, True])
def test_the_attempts_of_a_request_end_with_its_time(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, learns: bool
) -> None:
    monkeypatch.setattr(attempts, "ATTEMPT_TIMEOUT_S", 0.2)
    admin, limits = BoundedAdminClient(cluster.config, 2.0), list[float]()

    def silent(_: object, limit: float) -> None:
        limits.append(limit)
        time.sleep(limit)
        raise BrokerUnavailable("no answer", bootstrap_servers=admin.servers)

    def refreshed(_: object, limit: float) -> None:
        limits.append(limit)
        time.sleep(limit)

    monkeypatch.setattr(admin.client, "list_topics_once", refreshed)
    with pytest.raises(BrokerUnavailable, match="no answer"):
        admin.settled(silent, (), "", learns=learns, renews=not learns)
    assert limits[:3] == [pytest.approx(each) for each in (0.2, 0.3, 0.45)]
    assert sum(limits) <= 2.0 + 2 * attempts.MIN_ATTEMPT_S


def test_a_request_to_a_broker_that_is_gone_does_not_connect_to_it_all_the_time() -> None:
    for cluster in lent_cluster(debug="broker"):
        admin, lines = BoundedAdminClient(cluster.config, TIMEOUT_S).client, list[str]()
        wanted = {TopicPartition(TOPIC, 0): OffsetSpec.earliest()}  # type: ignore[no-untyped-call]
        (first,) = admin.list_offsets(wanted).values()
        assert first.result(TIMEOUT_S).offset == 0
        cluster.shut_down_beside_another(admin)
        with cluster.logging_to(admin, lines.append):
            (answer,) = admin.list_offsets(wanted, request_timeout=2).values()
            assert answer.exception(TIMEOUT_S) or answer.result().offset < 0
        assert sum("Connecting to" in line for line in lines) < 100


def test_an_idle_client_that_has_lost_a_broker_asks_the_new_leader_at_once(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, asked = BoundedAdminClient(cluster.config, TIMEOUT_S), list[object]()
    wanted = {TopicPartition(TOPIC, 0): OffsetSpec.earliest()}  # type: ignore[no-untyped-call]
    assert list_offsets(admin, wanted) == {0: 0}
    cluster.shut_down_beside_another(admin.client)
    cluster.elect(2)
    # The client reports it, unless it has read from the other that this one is gone.
    admin._errors.note(KafkaError(KafkaError._TRANSPORT))
    ask = admin.client.list_offsets

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(arguments)
        return ask(*arguments, **options)

    monkeypatch.setattr(admin.client, "list_offsets", counted)
    assert list_offsets(admin, wanted) == {0: 0}
    assert len(asked) == 1


@pytest.mark.parametrize("is_bootstrap", [False, True])
def test_a_client_does_not_ask_the_same_silent_broker_for_ever(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch, is_bootstrap: bool
) -> None:
    """librdkafka asks the broker that was idle for the shortest time, and takes it for connected for a minute."""
    cluster.start_another()
    brokers = BoundedAdminClient(cluster.config, TIMEOUT_S).client.list_topics(timeout=TIMEOUT_S).brokers
    known = [brokers[1], brokers[2]] if is_bootstrap else [brokers[1]]
    config = KafkaConfig({"bootstrap.servers": ",".join(f"{each.host}:{each.port}" for each in known)})
    monkeypatch.setattr(attempts, "ATTEMPT_TIMEOUT_S", 0.5)
    admins = [BoundedAdminClient(config, 10.0) for _ in range(2)]
    wanted = {TopicPartition(TOPIC, 0): OffsetSpec.earliest()}  # type: ignore[no-untyped-call]
    assert [list_offsets(each, wanted) for each in admins] == [{0: 0}] * 2
    cluster.silence(2)
    cluster.elect(1)
    assert list_offsets(admins[0], wanted) == {0: 0}
    assert admins[1].brokers() == [1, 2]


def test_a_client_that_knows_more_brokers_than_its_configuration_is_kept(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.start_another()
    monkeypatch.setattr(attempts, "ATTEMPT_TIMEOUT_S", 0.5)
    admin = BoundedAdminClient(cluster.config, 10.0)
    assert admin.brokers() == [1, 2]
    cluster.silence(1)  # which is all that a new client knows
    once, client = admin.client.list_topics_once, admin.client
    answers = iter([KafkaException(KafkaError(KafkaError._TIMED_OUT))])

    def first_unanswered(topic: str | None, limit: float) -> object:
        for error in answers:
            raise error
        return once(topic, limit)

    monkeypatch.setattr(admin.client, "list_topics_once", first_unanswered)
    admin._refresh(Attempts(10.0))
    assert admin.client is client


def test_a_broker_that_has_answered_may_refuse_the_login_of_the_next_client(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    denial = KafkaError(KafkaError._AUTHENTICATION)
    admin = BoundedAdminClient(cluster.config, TIMEOUT_S)
    assert admin.client.list_topics(TOPIC, timeout=TIMEOUT_S).brokers
    cluster.name_no_broker()
    admin._renew()
    monkeypatch.setattr(admin.client, "poll", lambda _: 0)
    admin._errors.note(denial)
    assert not admin.client.has_answer
    assert admin._passing_trouble() == denial


def test_a_lost_connection_is_a_reason_for_one_refresh(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    admin, refreshes = BoundedAdminClient(cluster.config, TIMEOUT_S), list[object]()
    admin.settled(lambda *_: admin.client.list_topics(TOPIC, timeout=TIMEOUT_S), (), "", learns=True)
    monkeypatch.setattr(admin.client, "list_topics_once", lambda *_: refreshes.append(None))
    for code in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):  # the first counts others
        admin._errors.note(KafkaError(code))
        for _ in range(3):
            admin.settled(lambda *_: None, (), "", learns=True)
    assert len(refreshes) == 1


def test_a_broker_that_refuses_the_login_fails_no_request_to_others(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    denial = KafkaError(KafkaError._AUTHENTICATION)
    admin, stranger = (BoundedAdminClient(each, TIMEOUT_S) for each in (cluster.config, KafkaConfig(NOBODY)))
    assert admin.client.list_topics(TOPIC, timeout=TIMEOUT_S).brokers
    for each in (admin, stranger):
        monkeypatch.setattr(each.client, "poll", lambda _: 0)  # which would add that nobody is there
        each._errors.note(denial)
    assert admin._passing_trouble() == denial
    with pytest.raises(KafkaFailed, match="refused the connection"):
        stranger._passing_trouble()


def test_a_broker_that_refused_the_login_fails_no_request_of_a_client_that_is_recreated(cluster: MockCluster) -> None:
    admin, troubles = BoundedAdminClient(cluster.config, TIMEOUT_S), list[KafkaError | None]()

    def ask(*_: object) -> None:
        troubles.append(admin._passing_trouble())
        if len(troubles) == 1:
            admin._errors.note(KafkaError(KafkaError._AUTHENTICATION))
            raise BrokerUnavailable("no answer", bootstrap_servers=admin.servers)

    admin.settled(ask, (), "", renews=True)
    assert troubles == [None, None]


def test_a_cluster_without_brokers_for_now_has_answered_all_the_same(cluster: MockCluster) -> None:
    client = BoundedAdminClient(cluster.config, TIMEOUT_S).client
    assert client.list_topics(timeout=TIMEOUT_S).brokers
    assert client.has_answer
    cluster.name_no_broker()
    assert not client.list_topics(timeout=TIMEOUT_S).brokers
    assert client.has_answer


def test_a_topic_is_created_on_a_cluster_that_names_a_broker_only_later(cluster: MockCluster) -> None:
    topics = Topics(cluster.config, timeout=TIMEOUT_S)
    cluster.name_no_broker()
    starts = Timer(1.0, cluster.start_another)
    starts.start()
    # It is asked, and this cluster of librdkafka's does not know how.
    with pytest.raises(KafkaFailed, match="not supported"):
        topics.create("new", 1)
    starts.join()


def test_an_error_without_more_to_say_keeps_its_own_cause(cluster: MockCluster) -> None:
    answer, cause = Future[None](), KafkaException(KafkaError(KafkaError._TIMED_OUT))
    answer.set_exception(cause)
    with pytest.raises(BrokerUnavailable) as raised:
        BoundedAdminClient(cluster.config, TIMEOUT_S).result(answer, limit=TIMEOUT_S)
    assert raised.value.__cause__ is cause


def test_a_request_that_is_never_answered_ends_in_time(cluster: MockCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka drops those of a client that is replaced meanwhile."""
    admin = BoundedAdminClient(cluster.config, 0.5)
    wanted = {TopicPartition(TOPIC, 0): OffsetSpec.earliest()}  # type: ignore[no-untyped-call]
    monkeypatch.setattr(admin.client, "list_offsets", lambda asked, **_: {each: Future[None]() for each in asked})
    with pytest.raises(BrokerUnavailable, match="did not answer in time"):
        list_offsets(admin, wanted)


def test_a_cluster_that_refuses_the_login_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "ATTEMPT_TIMEOUT_S", 0.2)
    admin = BoundedAdminClient(KafkaConfig(NOBODY), TIMEOUT_S)
    monkeypatch.setattr(admin.client, "poll", lambda _: 0)  # which would add that nobody is there
    asked = metadata_limits(admin.client, monkeypatch)
    admin._errors.note(KafkaError(KafkaError._AUTHENTICATION))
    for count in (1, 2):
        with pytest.raises(KafkaFailed, match="refused the connection"):
            admin.settled(lambda *_: None, (), "", learns=True)
        assert len(asked) == count


def test_a_refusal_after_an_answer_is_none_of_the_cluster_where_the_release_of_the_client_is_not_known(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnecting_clients, "_librdkafka", lambda: None)
    admin, denial = BoundedAdminClient(cluster.config, TIMEOUT_S), KafkaError(KafkaError._AUTHENTICATION)
    assert admin.brokers() == [1]
    monkeypatch.setattr(admin.client, "poll", lambda _: 0)
    admin._errors.note(denial)
    assert admin._passing_trouble() == denial


def test_a_client_that_replaces_a_silent_one_has_an_answer_where_its_release_is_not_known(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnecting_clients, "_librdkafka", lambda: None)
    admin, denial = BoundedAdminClient(cluster.config, TIMEOUT_S), KafkaError(KafkaError._AUTHENTICATION)
    silent = admin.client

    def ignore(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(silent, "list_topics_once", ignore)
    admin._refresh(Attempts(TIMEOUT_S))
    assert admin.client is not silent
    monkeypatch.setattr(admin.client, "poll", lambda _: 0)
    admin._errors.note(denial)
    assert admin._passing_trouble() == denial


def test_a_question_for_the_brokers_creates_no_topic(cluster: MockCluster) -> None:
    """As a producer's would, where the brokers allow that, as they do by default."""
    assert BoundedAdminClient(cluster.config, TIMEOUT_S).brokers("missing") == [1]
    assert list(detached_consumer(cluster.config, "group").list_topics(timeout=TIMEOUT_S).topics) == [TOPIC]


@pytest.mark.parametrize("renews", [False, True])
def test_a_refusal_that_comes_at_once_is_not_asked_for_all_the_time(cluster: MockCluster, renews: bool) -> None:
    admin, asked = BoundedAdminClient(cluster.config, 2.0), list[object]()
    code = KafkaError.COORDINATOR_LOAD_IN_PROGRESS

    def refuse(codes: Mapping[int, WasmlineError], _: float) -> None:
        asked.append(codes)
        raise BrokerUnavailable("at once", bootstrap_servers="any:1") if renews else codes[code]

    with pytest.raises(BrokerUnavailable, match="at once"):
        admin.settled(refuse, (code,), "at once", renews=renews)
    assert len(asked) < 12


def test_a_state_that_does_not_pass_is_told_with_the_last_error_of_a_connection(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, code = BoundedAdminClient(cluster.config, 0.5), KafkaError.LEADER_NOT_AVAILABLE
    admin._errors.note(KafkaError(KafkaError._TRANSPORT, "its advertised listener refuses"))

    def refuse(codes: Mapping[int, WasmlineError], _: float) -> None:
        raise codes[code]

    with pytest.raises(BrokerUnavailable, match=r"no leader\. Last error: its advertised listener refuses"):
        admin.settled(refuse, (code,), "no leader")


def test_why_no_broker_answered_is_said() -> None:
    admin = BoundedAdminClient(KafkaConfig(NOBODY), 1.0)
    with pytest.raises(BrokerUnavailable, match=r"Last error: .*Connection refused"):
        admin.brokers()
