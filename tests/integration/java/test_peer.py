"""The Java peer does what the tests and benchmarks that are built on it take for granted."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import pytest

from support.java_peer.java_peer import LOCK, JavaPeer, Order, PeerFailed, micros
from wasmline.kafka import produce_all
from wasmline.local import jar_lock
from wasmline.testing.kafka import RunningKafka

KEYS = 3
RECORDS = 300


@pytest.fixture(scope="module")
def topic(kafka: RunningKafka) -> str:
    name = kafka.topic()
    produce_all(kafka.config, name, [(b"k%d" % (each % KEYS), b"v", None, None) for each in range(RECORDS)])
    return name


class Counter(ThreadingHTTPServer):
    """Answers every GET, and counts them."""

    requests = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.lock = threading.Lock()


class Answer(BaseHTTPRequestHandler):
    server: Counter
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        with self.server.lock:
            self.server.requests += 1
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@pytest.fixture
def server() -> Iterator[Counter]:
    with Counter() as counter:
        thread = threading.Thread(target=counter.serve_forever)
        thread.start()
        yield counter
        counter.shutdown()
        thread.join()


def test_the_library_is_locked_to_one_release() -> None:
    jars = {jar.module: jar.revision for jar in jar_lock.read(LOCK).jars}
    assert len(jars) == 17
    assert jars["parallel-consumer-core"] == "0.5.3.3"


def test_java_and_python_take_the_same_time_for_a_record(java_peer: JavaPeer) -> None:
    random = Random(5)
    records = [(random.randrange(1000), random.randrange(2 ** random.randrange(1, 62))) for _ in range(500)]
    times = [micros(*record, 5000) for record in records]
    assert java_peer.micros(records, 5000) == times
    assert max(times) <= 5000
    assert 2300 < sum(times) / len(times) < 2700


@pytest.mark.parametrize("order", ["KEY", "PARTITION"])
def test_a_run_takes_every_record_once_and_in_order(java_peer: JavaPeer, topic: str, order: Order) -> None:
    outcome = java_peer.bench(topic, records=RECORDS, order=order, concurrency=16, work="sleep 1000")
    assert sorted(outcome.handed) == [(0, offset) for offset in range(RECORDS)]
    assert (outcome.out_of_order, outcome.overlapping, outcome.duplicates) == (0, 0, 0)
    slowest = max(sum(micros(0, offset, 1000) for offset in range(key, RECORDS, KEYS)) for key in range(KEYS))
    assert outcome.seconds > slowest / 1e6
    assert outcome.worked > sum(micros(0, offset, 1000) for offset in range(RECORDS)) / 1e6


def test_what_overlaps_is_counted(java_peer: JavaPeer, topic: str) -> None:
    outcome = java_peer.bench(topic, records=RECORDS, order="UNORDERED", concurrency=16, work="fixed 1000")
    assert outcome.overlapping > 0


def test_http_work_asks_once_per_record(java_peer: JavaPeer, topic: str, server: Counter) -> None:
    url = f"http://127.0.0.1:{server.server_port}/work?a=b&c"
    outcome = java_peer.bench(topic, records=RECORDS, concurrency=16, work=f"http {url}")
    assert len(outcome.handed) == server.requests == RECORDS


def test_a_wait_that_runs_out_says_how_far_it_came(java_peer: JavaPeer, topic: str) -> None:
    with java_peer.consumer(topic, str(uuid.uuid4()), unfinished=[(0, 1), (0, 7)]) as consumer:
        assert consumer.wait(RECORDS - 2) == RECORDS - 2
        assert consumer.wait(RECORDS, timeout_s=0) == RECORDS - 2


def test_metadata_of_a_plain_java_commit_is_any_text(java_peer: JavaPeer, topic: str) -> None:
    group, commits = str(uuid.uuid4()), {0: (3, 'a "b"\n&=+%\\ é\0€')}
    assert java_peer.committed(topic, group) == {}
    java_peer.commit(topic, group, commits)
    assert java_peer.committed(topic, group) == commits


def test_an_exception_of_java_is_named_and_the_peer_lives_on(java_peer: JavaPeer, topic: str) -> None:
    with pytest.raises(PeerFailed, match="no such work: dig"):
        java_peer.consumer(topic, "group", work="dig")
    assert java_peer.micros([(0, 0)], 0) == [0]
