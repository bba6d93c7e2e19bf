"""What the consumer may rely on, of a cluster in memory and of a real one."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from support.consumers.clusters import Cluster, Kafka, numbered
from wasmline.consumer import ConsumedRecord, ConsumerOptions, Output
from wasmline.consumer.backends.base import Backend, Source
from wasmline.errors import CommitFailed, MetadataTooLarge, OutputRefused, ProducerFenced, TopicNotFound
from wasmline.topic_partitions import CommittedOffset, TopicPartition

TIMEOUT_S = 30.0
"""Seconds after which something that has to happen counts as missing."""


class Recorder:
    """A listener that begins where it is told, and notes what it hears."""

    def __init__(self, starts: Mapping[TopicPartition, int | None] | None = None) -> None:
        self.starts = starts
        self.has: set[TopicPartition] = set()
        self.heard: list[tuple[str, set[TopicPartition]]] = []
        self.gone: dict[TopicPartition, int | None] = {}
        """The offsets that their logs do not have."""
        self.on_revoke: Callable[[], None] = lambda: None

    def assigned(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        self.has |= set(partitions)
        self._hear("assigned", partitions)
        starts: Mapping[TopicPartition, int | None] = dict.fromkeys(partitions) if self.starts is None else self.starts
        return {partition: starts[partition] for partition in partitions if partition in starts}

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._hear("revoked", partitions)
        self.on_revoke()
        self.has -= set(partitions)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self._hear("lost", partitions)
        self.has -= set(partitions)

    def out_of_range(self, partition: TopicPartition, offset: int | None, end: int | None) -> None:
        self.gone[partition] = offset

    def _hear(self, what: str, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self.heard.append((what, set(partitions)))


def options(topic: str, group: str, **kafka: str) -> ConsumerOptions:
    settings = {name.replace("_", "."): value for name, value in kafka.items()}
    return ConsumerOptions(topics=(topic,), group_id=group, kafka=settings)


@contextmanager
def member(cluster: Cluster, asked: ConsumerOptions, listener: Recorder | None = None) -> Iterator[Backend]:
    """Yield a member that takes part in its group as soon as it polls."""
    with ExitStack() as stack:
        backend = cluster.backend(asked)
        stack.callback(backend.source.close)
        stack.callback(backend.sink.close)
        stack.callback(backend.transactions.close)
        backend.source.open(listener or Recorder())
        yield backend


@contextmanager
def joined(cluster: Cluster, asked: ConsumerOptions, listener: Recorder | None = None) -> Iterator[Backend]:
    """Yield a member that was given something of topics that are empty."""
    listener = listener or Recorder()
    with member(cluster, asked, listener) as backend:
        assert until(lambda: listener.has, backend.source) == []
        yield backend


def until(happened: Callable[[], object], *sources: Source) -> list[ConsumedRecord]:
    """Poll until something has happened, and return what came by then."""
    deadline = time.monotonic() + TIMEOUT_S
    records: list[ConsumedRecord] = []
    while not happened():
        assert time.monotonic() < deadline
        for source in sources:
            records += source.poll(100, 0.05)
    return records


def read(source: Source, count: int) -> list[ConsumedRecord]:
    """Poll for at least so many records."""
    deadline = time.monotonic() + TIMEOUT_S
    records: list[ConsumedRecord] = []
    while len(records) < count:
        assert time.monotonic() < deadline, f"only {records} came"
        records += source.poll(100, 0.1)
    return records


def offsets(records: Collection[ConsumedRecord]) -> list[int]:
    return [record.offset for record in records]


def test_a_record_arrives_as_it_was_written(cluster: Cluster, group: str) -> None:
    topic = cluster.topic(2)
    headers = [("trace", b"\x00\xff"), ("trace", None), ("", b"")]
    cluster.write(Output(topic, b"value", b"key", headers, timestamp=1_234, partition=1), Output(topic, None, b""))
    with member(cluster, options(topic, group)) as backend:
        records = {record.key: record for record in read(backend.source, 2)}
    assert records[b"key"] == ConsumedRecord(topic, 1, 0, b"key", b"value", headers, 1_234)
    assert records[b""].value is None
    assert list(records[b""].headers) == []


@pytest.mark.parametrize("value", [None, b""])
def test_a_record_without_a_value_arrives_though_it_is_the_only_one(
    cluster: Cluster, group: str, value: bytes | None
) -> None:
    topic = cluster.topic()
    cluster.write(Output(topic, value, b"key"))
    with member(cluster, options(topic, group)) as backend:
        assert [record.value for record in read(backend.source, 1)] == [value]


def test_records_of_a_partition_come_by_offset_and_no_poll_returns_more_than_it_may(
    cluster: Cluster, group: str
) -> None:
    topic = cluster.topic(2)
    cluster.write(*numbered(topic, 30), *numbered(topic, 30, partition=1))
    with member(cluster, options(topic, group)) as backend:
        polls: list[Sequence[ConsumedRecord]] = []
        while sum(len(poll) for poll in polls) < 60:
            polls.append(backend.source.poll(7, 1.0))
    assert max(len(poll) for poll in polls) <= 7
    records = [record for poll in polls for record in poll]
    for number in (0, 1):
        assert offsets([record for record in records if record.partition == number]) == list(range(30))


def test_a_partition_begins_where_its_listener_says(cluster: Cluster, group: str) -> None:
    topic = cluster.topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    cluster.write(*numbered(topic, 5), *numbered(topic, 5, partition=1))
    with member(cluster, options(topic, group), Recorder({first: 3, second: None})) as backend:
        records = read(backend.source, 7)
    assert sorted((record.partition, record.offset) for record in records) == [
        *((0, offset) for offset in (3, 4)),
        *((1, offset) for offset in range(5)),
    ]


def test_a_partition_that_its_listener_leaves_out_waits_for_a_seek_and_a_resume(cluster: Cluster, group: str) -> None:
    topic = cluster.topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    cluster.write(*numbered(topic, 5), *numbered(topic, 5, partition=1))
    with member(cluster, options(topic, group), Recorder({second: 0})) as backend:
        assert {record.partition for record in read(backend.source, 5)} == {1}
        backend.source.seek({first: 2})
        backend.source.resume([first])
        assert offsets(read(backend.source, 3)) == [2, 3, 4]


def test_no_seek_is_lost_soon_after_an_assignment(cluster: Cluster, group: str) -> None:
    topic, count = cluster.topic(40), 40
    cluster.write(*(output for number in range(count) for output in numbered(topic, 3, partition=number)))
    partitions = [TopicPartition(topic, number) for number in range(count)]
    listener = Recorder({})
    with member(cluster, options(topic, group), listener) as backend:
        assert until(lambda: listener.has, backend.source) == []
        time.sleep(0.47)  # librdkafka asks for a log's beginning once more half a second after a pause
        for partition in partitions:
            backend.source.seek({partition: 2})
            time.sleep(0.002)
        backend.source.resume(partitions)
        assert sorted(offsets(read(backend.source, count))) == [2] * count


def test_latest_begins_at_the_end_where_nothing_is_committed(cluster: Cluster, group: str) -> None:
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.write(*numbered(topic, 3))
    with member(cluster, options(topic, group, auto_offset_reset="latest")) as backend:
        until(lambda: backend.source.cached_end_offsets([partition]), backend.source)
        cluster.write(Output(topic, b"new"))
        assert offsets(read(backend.source, 1)) == [3]


def test_a_paused_partition_is_silent_and_goes_on_after_the_last_record_it_gave(cluster: Cluster, group: str) -> None:
    topic = cluster.topic(2)
    cluster.write(*numbered(topic, 3))
    with member(cluster, options(topic, group)) as backend:
        read(backend.source, 3)
        backend.source.pause([TopicPartition(topic, 0)])
        cluster.write(*numbered(topic, 3))
        cluster.write(*numbered(topic, 3, partition=1))
        assert {record.partition for record in read(backend.source, 3)} == {1}
        backend.source.resume([TopicPartition(topic, 0)])
        assert offsets(read(backend.source, 3)) == [3, 4, 5]


def test_a_seek_goes_back_and_forward(cluster: Cluster, group: str) -> None:
    topic = cluster.topic()
    cluster.write(*numbered(topic, 6))
    with member(cluster, options(topic, group)) as backend:
        read(backend.source, 6)
        for start in (1, 4):
            backend.source.seek({TopicPartition(topic, 0): start})
            assert offsets(read(backend.source, 6 - start)) == list(range(start, 6))


@pytest.mark.parametrize("start", [1_000, 1])
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_an_offset_that_the_log_does_not_have_is_told_and_sought(
    cluster: Cluster, group: str, start: int, strategy: str
) -> None:
    topic = cluster.topic(2)
    partition, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    cluster.write(*numbered(topic, 6), *numbered(topic, 3, partition=1))
    cluster.cut(partition, 4)
    listener = Recorder({partition: start, other: 1})
    asked = options(topic, group, partition_assignment_strategy=strategy, auto_offset_reset="latest")
    with member(cluster, asked, listener) as backend:
        before = until(lambda: listener.gone, backend.source)
        assert listener.gone == {partition: start}
        assert backend.source.beginning_offsets([partition, other]) == {partition: 4, other: 0}
        backend.source.seek({partition: 4})
        records = before + read(backend.source, 4 - len(before))
        assert sorted((record.partition, record.offset) for record in records) == [(0, 4), (0, 5), (1, 1), (1, 2)]


def test_ends_are_asked_for_or_learnt_from_fetches(cluster: Cluster, group: str) -> None:
    topic = cluster.topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    cluster.write(*numbered(topic, 4))
    with member(cluster, options(topic, group)) as backend:
        assert backend.source.end_offsets([first, second]) == {first: 4, second: 0}
        read(backend.source, 4)
        assert backend.source.cached_end_offsets([first])[first] == 4
        assert backend.source.cached_end_offsets([TopicPartition(topic, 9)]) == {}


def test_aborted_records_and_markers_leave_gaps_and_an_open_transaction_holds_the_end(
    cluster: Cluster, group: str
) -> None:
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    writer = cluster.writer(f"id-{uuid.uuid4()}")
    for outcome in (writer.abort, writer.commit):
        for output in numbered(topic, 2):
            writer.write(output)
        outcome()
    writer.write(Output(topic, b"open"))
    with member(cluster, options(topic, group)) as backend:
        assert offsets(read(backend.source, 2)) == [3, 4]
        assert backend.source.end_offsets([partition]) == {partition: 6}
        writer.commit()
        assert offsets(read(backend.source, 1)) == [6]


def test_what_a_member_commits_is_kept_byte_for_byte(cluster: Cluster, group: str) -> None:
    topic = cluster.topic(6)
    texts = ["", "a", "x" * 4_096, "bAAKcgMA", "é漢😀"]
    left = {TopicPartition(topic, number): CommittedOffset(number, text) for number, text in enumerate(texts)}
    partitions = [TopicPartition(topic, number) for number in range(6)]
    with joined(cluster, options(topic, group)) as backend:
        assert backend.source.committed(partitions) == {}
        backend.source.commit(left)
        assert backend.source.committed(partitions) == left
    assert cluster.committed(group, topic) == left


def test_metadata_that_a_broker_does_not_take_is_refused(cluster: Cluster, group: str) -> None:
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    with joined(cluster, options(topic, group)) as backend:
        with pytest.raises(MetadataTooLarge):
            backend.source.commit({partition: CommittedOffset(7, "x" * 4_097)})
        backend.transactions.open([partition])
        failures = backend.transactions.begin({partition: ([], CommittedOffset(7, "x" * 4_097))})()
        assert isinstance(failures[partition], MetadataTooLarge)
        assert backend.source.committed([partition]) == {}
        assert backend.transactions.begin({partition: ([], CommittedOffset(7, "x" * 4_096))})() == {}
        assert backend.source.committed([partition]) == {partition: CommittedOffset(7, "x" * 4_096)}


def test_a_second_member_gets_its_share_once_the_first_has_let_it_go(cluster: Cluster, group: str) -> None:
    topic = cluster.topic(4)
    asked = options(topic, group)
    first, second = Recorder(), Recorder()
    with joined(cluster, asked, first) as one:
        until(lambda: len(first.has) == 4, one.source)
        taken: list[set[TopicPartition]] = []
        first.on_revoke = lambda: taken.append(set(second.has))
        another = cluster.backend(asked)
        another.source.open(second)
        until(lambda: len(second.has) == 2 and len(first.has) == 2, another.source, one.source)
        assert taken == [set()], "while it lets go, nobody has what it gives away"
        assert first.has.isdisjoint(second.has)
        another.source.close()
        assert [what for what, _ in second.heard] == ["assigned", "revoked"]
        until(lambda: len(first.has) == 4, one.source)


def test_partitions_may_be_committed_while_they_are_taken_away(cluster: Cluster, group: str) -> None:
    topic = cluster.topic(2)
    listener = Recorder()
    with joined(cluster, options(topic, group), listener) as backend:
        until(lambda: len(listener.has) == 2, backend.source)
        left = {each: CommittedOffset(each.partition + 1, "map") for each in listener.has}
        listener.on_revoke = lambda: backend.source.commit(left)
    assert cluster.committed(group, topic) == left


def test_a_member_that_was_thrown_out_commits_nothing_and_hears_that_it_lost(cluster: Cluster, group: str) -> None:
    partition = TopicPartition(cluster.topic(), 0)
    asked = options(partition.topic, group, session_timeout_ms="1000", max_poll_interval_ms="1000")
    listener = Recorder()
    with joined(cluster, asked, listener) as backend:
        with cluster.expelled(backend, asked):
            with pytest.raises(CommitFailed):
                backend.source.commit({partition: CommittedOffset(5, "")})
            until(lambda: not listener.has, backend.source)
        until(lambda: listener.has, backend.source)
        assert [what for what, _ in listener.heard] == ["assigned", "lost", "assigned"]
        assert backend.source.committed([partition]) == {}


def test_a_topic_that_is_not_there_is_named(cluster: Cluster, group: str) -> None:
    backend = cluster.backend(options("no-such-topic", group))
    with pytest.raises(TopicNotFound, match="no-such-topic"):
        backend.source.open(Recorder())
    backend.source.close()


def test_a_regular_expression_finds_topics_that_are_made_later(cluster: Cluster, group: str) -> None:
    prefix = f"test-{uuid.uuid4()}"
    listener = Recorder()
    first = cluster.topic(name=f"{prefix}-1")
    with joined(cluster, options(f"^{prefix}.*", group), listener) as backend:
        second = cluster.topic(name=f"{prefix}-2")
        until(lambda: listener.has == {TopicPartition(first, 0), TopicPartition(second, 0)}, backend.source)


def test_outputs_are_answered_when_they_are_written_and_keys_go_where_java_sends_them(
    cluster: Cluster, group: str
) -> None:
    topic = cluster.topic(7)
    sink = cluster.backend(options(topic, group)).sink
    keys = [b"", b"a", b"ab", b"abc", b"abcd", b"foobar", "Zürich".encode(), bytes(range(256))]
    answers: list[Exception | None] = []
    for key in keys:
        sink.write(Output(topic, key, key, [("name", key)], timestamp=5), answers.append)
    sink.write(Output(topic, b"placed", partition=6), answers.append)
    assert sink.flush(TIMEOUT_S) == 0
    assert answers == [None] * 9
    sink.close()
    records = {record.value: record for record in cluster.read(topic)}
    assert {record.partition for value, record in records.items() if value == b"placed"} == {6}
    assert [records[key].partition for key in keys] == [2, 5, 0, 4, 5, 0, 2, 3]
    assert records[b"abc"].headers == [("name", b"abc")]
    assert records[b"abc"].timestamp == 5


def test_a_refused_output_fails_alone(cluster: Cluster, group: str) -> None:
    topic = cluster.topic(max_message_bytes=1_000)
    sink = cluster.backend(options(topic, group)).sink
    answers: dict[str, Exception | None] = {}
    sink.write(Output(topic, b"x"), lambda error: answers.update(before=error))
    sink.write(Output(topic, b"x" * 10_000), lambda error: answers.update(large=error))
    sink.write(Output(topic, b"x"), lambda error: answers.update(after=error))
    assert sink.flush(TIMEOUT_S) == 0
    sink.close()
    assert answers["before"] is answers["after"] is None
    assert isinstance(answers["large"], OutputRefused)
    assert len(cluster.read(topic)) == 2


def test_a_transaction_shows_its_outputs_and_its_offsets_together(cluster: Cluster, group: str) -> None:
    source, target = cluster.topic(2), cluster.topic()
    partitions = [TopicPartition(source, number) for number in (0, 1)]
    with joined(cluster, options(source, group)) as backend:
        backend.transactions.open(partitions)
        work = {
            each: ([Output(target, b"one"), Output(target, b"two")], CommittedOffset(3, "map")) for each in partitions
        }
        assert backend.transactions.begin(work)() == {}
        assert backend.transactions.begin({partitions[0]: ([], CommittedOffset(4, ""))})() == {}
        expected = {partitions[0]: CommittedOffset(4, ""), partitions[1]: CommittedOffset(3, "map")}
        assert backend.source.committed(partitions) == expected
    assert sorted(record.value for record in cluster.read(target) if record.value) == [b"one"] * 2 + [b"two"] * 2


def test_a_refused_output_fails_its_transaction_and_no_other(cluster: Cluster, group: str) -> None:
    source, target = cluster.topic(2), cluster.topic(max_message_bytes=1_000)
    bad, good = (TopicPartition(source, number) for number in (0, 1))
    with joined(cluster, options(source, group)) as backend:
        backend.transactions.open([bad, good])
        large = [Output(target, b"bad"), Output(target, b"x" * 10_000), Output(target, b"bad")]
        work = {bad: (large, CommittedOffset(3, "")), good: ([Output(target, b"good")], CommittedOffset(1, ""))}
        failures = backend.transactions.begin(work)()
        assert list(failures) == [bad]
        error = failures[bad]
        assert isinstance(error, OutputRefused)
        assert error.place == 1
        assert backend.source.committed([bad, good]) == {good: CommittedOffset(1, "")}
        better = {bad: ([Output(target, b"better")], CommittedOffset(3, ""))}
        if failures := backend.transactions.begin(better)():
            # The refused record left a gap in librdkafka's numbers, which costs it one more transaction.
            assert isinstance(failures[bad], CommitFailed)
            assert backend.transactions.begin(better)() == {}
    assert [record.value for record in cluster.read(target)] == [b"good", b"better"]


def test_a_round_that_was_given_up_writes_nothing_once_its_partition_is_opened_anew(
    cluster: Cluster, group: str
) -> None:
    source, target = cluster.topic(), cluster.topic()
    partition = TopicPartition(source, 0)
    with joined(cluster, options(source, group)) as backend:
        backend.transactions.open([partition])
        work = {partition: ([Output(target, b"once")], CommittedOffset(1, ""))}
        late, later = backend.transactions.begin(work), backend.transactions.begin(work)
        backend.transactions.open([partition])
        assert list(late()) == [partition]
        assert backend.transactions.begin(work)() == {}
        assert list(later()) == [partition]
        assert backend.transactions.begin({partition: ([], CommittedOffset(2, ""))})() == {}
    assert [record.value for record in cluster.read(target)] == [b"once"]


def test_who_opens_a_partition_fences_who_had_it(cluster: Cluster, group: str) -> None:
    source, target = cluster.topic(2), cluster.topic()
    mine, kept = (TopicPartition(source, number) for number in (0, 1))
    with joined(cluster, options(source, group)) as backend:
        backend.transactions.open([mine, kept])
        other = cluster.backend(options(source, group))
        other.transactions.open([mine])
        work = {each: ([Output(target, str(each.partition).encode())], CommittedOffset(1, "")) for each in (mine, kept)}
        failures = backend.transactions.begin(work)()
        other.transactions.close()
        assert list(failures) == [mine]
        assert isinstance(failures[mine], ProducerFenced)
    assert [record.value for record in cluster.read(target)] == [b"1"]


def test_committed_waits_for_an_open_transaction(cluster: Cluster, group: str) -> None:
    topic = cluster.topic()
    partition = TopicPartition(topic, 0)
    cluster.commit(group, {partition: CommittedOffset(1, "older")})
    writer = cluster.writer(f"id-{uuid.uuid4()}")
    writer.send_offsets(group, {partition: CommittedOffset(2, "newer")})
    source = cluster.backend(options(topic, group)).source
    begun = threading.Event()

    def ask() -> Mapping[TopicPartition, CommittedOffset]:
        begun.set()
        return source.committed([partition])

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask)
        assert begun.wait(TIMEOUT_S)
        writer.commit()
        assert answer.result(TIMEOUT_S) == {partition: CommittedOffset(2, "newer")}
    source.close()


def test_opening_a_partition_aborts_what_was_left_open(cluster: Cluster, group: str) -> None:
    source, target = cluster.topic(), cluster.topic()
    partition = TopicPartition(source, 0)
    cluster.commit(group, {partition: CommittedOffset(1, "older")})
    writer = cluster.writer(f"{group}/{source}/0")
    writer.write(Output(target, b"half"))
    writer.send_offsets(group, {partition: CommittedOffset(2, "newer")})
    backend = cluster.backend(options(source, group))
    backend.transactions.open([partition])
    assert backend.source.committed([partition]) == {partition: CommittedOffset(1, "older")}
    backend.transactions.close()
    backend.source.close()
    assert cluster.read(target) == []


def test_closing_twice_or_without_having_opened_anything_is_fine(cluster: Cluster, group: str) -> None:
    backend = cluster.backend(options("never-opened", group))
    for _ in range(2):
        backend.transactions.close()
        backend.sink.close()
        backend.source.close()


@pytest.mark.parametrize("bad", [[b"bad\xff\xfe"], [b"\xff", b"\xed\xa0\x80"]], ids=["one", "two"])
def test_a_header_whose_name_is_no_utf8_is_read_and_holds_nothing_up(
    real_cluster: Kafka, group: str, bad: list[bytes]
) -> None:
    """Names are bytes to brokers and to most other clients."""
    topic = real_cluster.topic()
    real_cluster.write(*numbered(topic, 200))  # after which the interpreter has specialized its calls
    real_cluster.write_headers(topic, [(b"first", b"1"), *((name, b"2") for name in bad), (b"last", b"3")])
    real_cluster.write(Output(topic, b"next", partition=0))
    source = real_cluster.backend(ConsumerOptions(topics=(topic,), group_id=group)).source
    source.open(Recorder())
    records: list[ConsumedRecord] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(records) < 202 and time.monotonic() < deadline:
        records += source.poll(10, 0.1)
    source.close()
    assert [record.value for record in records[200:]] == [b"value", b"next"]
    names = ["bad\ufffd\ufffd"] if len(bad) == 1 else ["\ufffd", "\ufffd"]
    assert list(records[200].headers) == [("first", b"1"), *((name, b"2") for name in names), ("last", b"3")]
