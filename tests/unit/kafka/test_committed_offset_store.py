"""The doors to committed offsets, as far as they need no broker."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from support.interruption import is_interrupted
from wasmline.consumer import ConsumerOptions
from wasmline.consumer.backends.kafka.exactly_once_probe import require_exactly_once
from wasmline.consumer.backends.kafka.group_source import GroupSource
from wasmline.consumer.backends.kafka.lazy_offset_store import LazyOffsetStore
from wasmline.errors import (
    BrokerUnavailable,
    ClientClosed,
    ClientUntested,
    InexactMetadata,
    NotAuthorized,
    UnsafeBroker,
)
from wasmline.kafka import committed_offset_store, librdkafka_ctypes, reconnecting_clients
from wasmline.kafka.committed_offset_store import (
    CommittedOffsetStore,
    LibrdkafkaOffsetStore,
    OffsetsOnlyStore,
    select_offset_store,
)
from wasmline.kafka.config import FILE_VARIABLE, VARIABLE, KafkaConfig
from wasmline.kafka.error_mapping import translate_errors
from wasmline.kafka.librdkafka_ctypes import Librdkafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0", "session.timeout.ms": "1000"}
PARTITION = TopicPartition("topic", 0)
DOORS = pytest.mark.parametrize("offset_store", [LibrdkafkaOffsetStore(), OffsetsOnlyStore()], ids=["exact", "plain"])


@pytest.fixture
def consumer() -> Consumer:
    return Consumer({**NOWHERE, "group.id": "group"})


def test_an_offset_below_zero_cannot_be_committed() -> None:
    with pytest.raises(ValueError, match="-1001"):
        CommittedOffset(-1001, "map")


@DOORS
def test_a_closed_consumer_is_refused_by_name(offset_store: CommittedOffsetStore, consumer: Consumer) -> None:
    consumer.close()
    with pytest.raises(ClientClosed, match="closed"):
        offset_store.committed(consumer, [PARTITION])
    with pytest.raises(ClientClosed, match="closed"):
        offset_store.commit(consumer, {PARTITION: CommittedOffset(1)})


@DOORS
def test_a_closed_producer_is_refused_by_name(offset_store: CommittedOffsetStore, consumer: Consumer) -> None:
    producer = Producer({"log_level": "0"})
    producer.close()
    with pytest.raises(ClientClosed, match="closed"):
        offset_store.send_offsets(producer, consumer.consumer_group_metadata(), {PARTITION: CommittedOffset(1)})


@DOORS
def test_without_a_broker_a_commit_ends_and_says_so(offset_store: CommittedOffsetStore, consumer: Consumer) -> None:
    with pytest.raises(BrokerUnavailable, match="nowhere"), translate_errors("nowhere"):
        offset_store.commit(consumer, {PARTITION: CommittedOffset(1, "map")}, timeout=0.2)


def test_a_commit_that_nobody_answers_is_given_up_in_time(consumer: Consumer) -> None:
    with pytest.raises(KafkaException, match=r"not answered within 0\.2 s and may still be carried out"):
        LibrdkafkaOffsetStore().commit(consumer, {PARTITION: CommittedOffset(1, "map")}, timeout=0.2)


def test_a_commit_that_the_client_gives_up_is_no_success(consumer: Consumer) -> None:
    with pytest.raises(KafkaException) as failed:
        LibrdkafkaOffsetStore().commit(consumer, {PARTITION: CommittedOffset(1, "map")}, timeout=60)
    assert failed.value.args[0].code() == KafkaError._WAIT_COORD


@DOORS
def test_without_a_broker_a_read_ends_and_says_so(offset_store: CommittedOffsetStore, consumer: Consumer) -> None:
    with pytest.raises(BrokerUnavailable, match="nowhere"), translate_errors("nowhere"):
        offset_store.committed(consumer, [PARTITION], timeout=0.2)


@DOORS
def test_nothing_asked_for_needs_no_broker(offset_store: CommittedOffsetStore, consumer: Consumer) -> None:
    assert offset_store.committed(consumer, [], timeout=60) == {}
    offset_store.commit(consumer, {}, timeout=60)
    offset_store.send_offsets(Producer({"log_level": "0"}), consumer.consumer_group_metadata(), {}, timeout=60)


@DOORS
def test_offsets_of_a_producer_without_transactions_are_refused(
    offset_store: CommittedOffsetStore, consumer: Consumer
) -> None:
    group = consumer.consumer_group_metadata()
    with pytest.raises(KafkaException) as refused:
        offset_store.send_offsets(Producer({"log_level": "0"}), group, {PARTITION: CommittedOffset(1)})
    assert refused.value.args[0].code() == KafkaError._NOT_CONFIGURED


def test_what_is_no_metadata_of_a_group_is_refused() -> None:
    with pytest.raises(KafkaException) as refused:
        LibrdkafkaOffsetStore().send_offsets(Producer({"log_level": "0"}), b"no group", {PARTITION: CommittedOffset(1)})
    assert refused.value.args[0].code() == KafkaError._BAD_MSG


class Watched(Consumer):
    """Notes when it is closed."""

    events: list[str] = []

    def close(self) -> None:
        self.events.append("closed")
        super().close()


def test_a_client_is_closed_once_no_read_of_offsets_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, library = Watched({**NOWHERE, "group.id": "group"}), Librdkafka()
    begun, release, closing = threading.Event(), threading.Event(), threading.Event()
    events = consumer.events = []

    def committed(*_: Any) -> int:
        begun.set()
        assert release.wait(30)
        events.append("read")
        return KafkaError._TIMED_OUT

    monkeypatch.setitem(library._functions, "committed", committed)
    offset_store = LibrdkafkaOffsetStore()
    monkeypatch.setattr(offset_store, "_library", library)
    options, config = ConsumerOptions(topics=("topic",), group_id="group", kafka=NOWHERE), KafkaConfig(NOWHERE)
    source = GroupSource(options, config, LazyOffsetStore(config, "group", offset_store))
    source._opened = consumer

    def read() -> None:
        with pytest.raises(KafkaException):
            offset_store.committed(consumer, [PARTITION])

    def close() -> None:
        closing.set()
        source.close()

    reader, closer = threading.Thread(target=read), threading.Thread(target=close)
    reader.start()
    assert begun.wait(30)
    closer.start()
    assert closing.wait(30)
    while closer.is_alive() and id(consumer) not in librdkafka_ctypes._closing:
        closer.join(0.001)
    with pytest.raises(ClientClosed, match="about to be closed"):
        offset_store.committed(consumer, [PARTITION])
    release.set()
    reader.join()
    closer.join()
    assert events == ["read", "closed"]
    assert not librdkafka_ctypes._closing
    with pytest.raises(ClientClosed):
        offset_store.committed(consumer, [PARTITION])


def running_calls(clients: Collection[Any]) -> int:
    """Of these clients: an earlier test of this process may have left a call that hangs."""
    identities = set(map(id, clients))
    return sum(calls for (client, _), calls in librdkafka_ctypes._calls.items() if client in identities)


def test_a_close_that_is_interrupted_leaves_the_client_open(consumer: Consumer) -> None:
    library, interrupted = Librdkafka(), threading.Event()
    begun = threading.Event()

    def call() -> None:
        with library.lent(consumer):
            begun.set()
            while id(consumer) not in librdkafka_ctypes._closing:
                time.sleep(0.001)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert interrupted.wait(30)

    thread = threading.Thread(target=call)
    thread.start()
    assert begun.wait(30)
    with pytest.raises(KeyboardInterrupt):
        librdkafka_ctypes.close(consumer)
    interrupted.set()
    thread.join()
    with library.lent(consumer):  # also another client, which may have the same identity
        pass
    librdkafka_ctypes.close(consumer)
    assert not running_calls([consumer])


def test_a_call_that_is_interrupted_does_not_hold_up_the_close() -> None:
    library = Librdkafka()

    def call(consumer: Consumer) -> None:
        with library.lent(consumer):
            pass

    consumers: list[Consumer] = []
    is_over = False
    while not is_over:
        consumer = Consumer({**NOWHERE, "group.id": "group"})
        is_over = not is_interrupted(partial(call, consumer), (librdkafka_ctypes,), step=len(consumers))
        librdkafka_ctypes.close(consumer)
        consumers.append(consumer)
    assert len(consumers) > 6
    assert not running_calls(consumers)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_calls_of_other_threads_at_a_fork_are_none_of_the_child(consumer: Consumer) -> None:
    with Librdkafka().lent(consumer), librdkafka_ctypes._changed:
        child = os.fork()
        if not child:  # no test may continue in it
            is_free = librdkafka_ctypes._changed.acquire(blocking=False) and not librdkafka_ctypes._calls
            os._exit(0 if is_free else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_other_objects_are_no_clients() -> None:
    with pytest.raises(TypeError, match="str"):
        Librdkafka().handle("consumer")  # type: ignore[arg-type]


@pytest.fixture
def unknown_release(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The client is of a release that nobody has tried."""
    monkeypatch.setattr(librdkafka_ctypes, "KNOWN_CLIENTS", ())
    monkeypatch.setattr(committed_offset_store, "KNOWN_CLIENTS", ())
    librdkafka_ctypes._tried.cache_clear()
    yield
    librdkafka_ctypes._tried.cache_clear()


@pytest.mark.usefixtures("unknown_release")
def test_an_unknown_release_of_the_client_is_used_once_it_passed_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LibrdkafkaOffsetStore().keeps_metadata
    monkeypatch.setattr(librdkafka_ctypes, "TRIAL_TIMEOUT_S", 0.0)
    assert LibrdkafkaOffsetStore().keeps_metadata  # one trial for a process


@pytest.mark.usefixtures("unknown_release")
def test_the_trial_of_a_client_runs_nothing_of_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ctypes.py").write_text("raise SystemExit('code of a project that was downloaded')")
    monkeypatch.chdir(tmp_path)
    assert LibrdkafkaOffsetStore().keeps_metadata


@pytest.mark.usefixtures("unknown_release")
def test_the_trial_of_a_client_runs_no_code_of_a_folder_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('code of a project that was downloaded')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, "", "relative"])
    monkeypatch.setattr(
        librdkafka_ctypes, "TRIAL", "import os, sys; assert all(map(os.path.isabs, sys.path)), sys.path"
    )
    assert LibrdkafkaOffsetStore().keeps_metadata


@pytest.mark.usefixtures("unknown_release")
def test_the_trial_of_a_client_knows_no_login_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, FILE_VARIABLE):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setattr(librdkafka_ctypes, "TRIAL", "import os; assert 'secret' not in os.environ.values()")
    assert LibrdkafkaOffsetStore().keeps_metadata


NO_PROCESS = OSError(errno.EAGAIN, "Resource temporarily unavailable")
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.usefixtures("unknown_release")
@pytest.mark.parametrize("obstacle", [NO_PROCESS, subprocess.TimeoutExpired("python", 60), KILLED], ids=type)
def test_a_trial_that_did_not_come_to_an_end_says_nothing_about_the_client(
    monkeypatch: pytest.MonkeyPatch, obstacle: Exception | str
) -> None:
    def run(*_: Any, **__: Any) -> Any:
        assert isinstance(obstacle, Exception)
        raise obstacle

    with monkeypatch.context() as patch:
        if isinstance(obstacle, str):
            patch.setattr(librdkafka_ctypes, "TRIAL", obstacle)
        else:
            patch.setattr(subprocess, "run", run)
        with pytest.raises(ClientUntested, match=r"confluent-kafka \d") as caught:
            select_offset_store(KafkaConfig(NOWHERE), "orders", PARTITION)
        assert caught.value.retryable
        reconnecting_clients._tried_librdkafka.cache_clear()
        assert reconnecting_clients._librdkafka() is None
    assert LibrdkafkaOffsetStore().keeps_metadata
    assert reconnecting_clients._librdkafka() is not None


@pytest.mark.usefixtures("unknown_release")
def test_a_process_without_an_interpreter_to_try_a_client_with_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", None)
    with pytest.raises(InexactMetadata, match=r"no sys\.executable"):
        LibrdkafkaOffsetStore()


def test_the_handle_of_an_admin_client_is_tried_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = []
    handle = Librdkafka.handle

    def noted(library: Librdkafka, client: Any) -> int:
        if type(client) in (Consumer, Producer, AdminClient):  # not those that a thread of this process watches
            kinds.append(type(client).__name__)
        return handle(library, client)

    monkeypatch.setattr(Librdkafka, "handle", noted)
    Librdkafka()
    assert kinds == ["Consumer", "Producer", "AdminClient"]


CRASH = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
OTHER_LAYOUT = """
from wasmline.kafka import librdkafka_ctypes
librdkafka_ctypes.Partition.offset = librdkafka_ctypes.Partition.opaque
librdkafka_ctypes.Librdkafka(is_trial=True)
"""


@pytest.mark.usefixtures("unknown_release")
@pytest.mark.parametrize(("trial", "problem"), [(CRASH, "status -11"), (OTHER_LAYOUT, "InexactMetadata: .*layout")])
def test_an_unknown_release_of_the_client_that_fails_its_trial_is_refused(
    monkeypatch: pytest.MonkeyPatch, trial: str, problem: str
) -> None:
    monkeypatch.setattr(librdkafka_ctypes, "TRIAL", trial)
    with pytest.raises(InexactMetadata, match=rf"confluent-kafka \d.* cannot be called .*{problem}"):
        LibrdkafkaOffsetStore()


def test_another_library_than_the_clients_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "libversion", lambda: ("1.0.0", 0x010000FF))
    with pytest.raises(InexactMetadata, match=r"1\.0\.0, and another one"):
        LibrdkafkaOffsetStore()


def test_a_library_that_lacks_a_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(librdkafka_ctypes.FUNCTIONS, "commit_and_forget", (ctypes.c_int,))
    with pytest.raises(InexactMetadata, match="rd_kafka_commit_and_forget"):
        LibrdkafkaOffsetStore()


def test_a_library_with_another_layout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(librdkafka_ctypes.Partition, "offset", librdkafka_ctypes.Partition.opaque)
    with pytest.raises(InexactMetadata, match="another layout"):
        LibrdkafkaOffsetStore()


def test_a_client_that_cannot_be_called_gets_the_plain_door_and_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(confluent_kafka, "libversion", lambda: ("1.0.0", 0x010000FF))
    offset_store = select_offset_store(KafkaConfig({"bootstrap.servers": "127.0.0.1:1"}), "orders", PARTITION)
    assert not offset_store.keeps_metadata
    assert "group orders are committed without metadata" in caplog.text
    assert "confluent-kafka uses librdkafka 1.0.0" in caplog.text
    assert "github.com/confluentinc/confluent-kafka-python/issues" in caplog.text


@pytest.fixture
def no_test_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster permits no scratch group."""

    def denied(*_: Any, **__: Any) -> None:
        raise NotAuthorized("nowhere does not permit group orders.self-test.1", name="orders.self-test.1")

    monkeypatch.setattr(committed_offset_store, "self_test", denied)


@pytest.mark.usefixtures("no_test_permitted")
def test_a_known_client_gets_the_exact_door_where_no_test_is_permitted() -> None:
    assert select_offset_store(KafkaConfig(NOWHERE), "orders", PARTITION).keeps_metadata


@pytest.mark.usefixtures("no_test_permitted", "unknown_release")
def test_an_unknown_client_gets_the_plain_door_where_no_test_is_permitted(caplog: pytest.LogCaptureFixture) -> None:
    config = KafkaConfig(NOWHERE)
    assert not select_offset_store(config, "orders", PARTITION).keeps_metadata
    assert re.search(r"without metadata, because: confluent-kafka \d.* is untested.*does not permit", caplog.text)
    with pytest.raises(UnsafeBroker):
        require_exactly_once(config, "orders", PARTITION, LazyOffsetStore(config, "orders"))


def test_a_broker_that_does_not_answer_says_nothing_about_the_client() -> None:
    with pytest.raises(BrokerUnavailable):
        select_offset_store(KafkaConfig({"bootstrap.servers": "127.0.0.1:1"}), "orders", PARTITION, timeout=0.2)
