"""A broker lost transaction markers: what hangs is found, and ended as it was decided, or an operator is asked."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from support import lost_markers
from support.lost_markers import containing, every, last_marker
from wasmline.consumer import ConsumedRecord, ConsumerOptions, Delivery, Output, ParallelConsumer, State
from wasmline.consumer.backends.kafka.transactions import output_topics
from wasmline.errors import HangingTransaction, KafkaError, NotAuthorized, TopicNotFound
from wasmline.job_offsets.committed_offset_reader import GroupOffsets
from wasmline.job_offsets.microbatch_transactions import BatchTransactions
from wasmline.kafka import KafkaConfig, hanging_transactions, produce_all, read_to_end
from wasmline.kafka.committed_offset_store import LibrdkafkaOffsetStore
from wasmline.kafka.hanging_transactions import ENDED_STATES, end_hanging, require_no_hanging_transaction
from wasmline.kafka.transaction_log import CONSUMER_OFFSETS, TRANSACTION_STATE, Decided, Decision
from wasmline.kafka.transaction_requests import TransactionRequests
from wasmline.local import LocalKafka
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset, TopicPartition
from wasmline.transactional_ids import transactional_id

STABLE_S = 0.5
"""Seconds after which a stable read counts as one that waits for ever; nothing else writes on this broker."""


@dataclass
class Story:
    """A group of its own, the transactions of one id for it, and which of their markers are lost."""

    kafka: RunningKafka
    output: str = ""
    group: str = field(default_factory=lambda: f"group-{uuid.uuid4()}")
    producer_id: int = -1

    def __post_init__(self) -> None:
        self.output = self.kafka.topic(2)
        self.input = TopicPartition(self.kafka.topic(), 0)
        self.name = transactional_id(self.group, self.input)
        self.offset_store = LibrdkafkaOffsetStore()
        self.connect()
        self.reader = Consumer(
            self.kafka.config.client(
                **{"group.id": self.group, "enable.auto.commit": "false", "isolation.level": "read_committed"}
            )
        )

    def connect(self) -> None:
        """Use another producer; one that was there before a broker's restart may wait for ever (librdkafka 5511)."""
        self.producer = Producer(self.kafka.config.client(**{"transactional.id": self.name}))
        self.producer.init_transactions(30)

    def transact(self, offset: int, *, commit: bool = True) -> None:
        self.begin(offset)
        (self.producer.commit_transaction if commit else self.producer.abort_transaction)(30)

    def begin(self, offset: int) -> None:
        self.producer.begin_transaction()
        for partition in (0, 1):
            self.producer.produce(self.output, b"%d" % offset, partition=partition)
        progress = {self.input: CommittedOffset(offset)}
        self.offset_store.send_offsets(self.producer, self.reader.consumer_group_metadata(), progress)
        self.producer.flush(30)

    def undo_outputs(self) -> None:
        """Abort a transaction of all that the last one wrote but its offsets."""
        self.producer.begin_transaction()
        for partition in (0, 1):
            self.producer.produce(self.output, b"later", partition=partition)
        self.producer.flush(30)
        self.producer.abort_transaction(30)

    def transact_all(self, commits: Sequence[bool]) -> None:
        for number, commit in enumerate(commits):
            self.transact(number + 1, commit=commit)

    def is_over(self, requests: TransactionRequests) -> bool:
        """Say whether the coordinator has written all markers, and take note of the producer's id."""
        state = requests.describe(self.name)
        assert state is not None
        self.producer_id = state.producer_id
        return state.state in ENDED_STATES

    def outputs(self) -> set[tuple[int | None, bytes | None]]:
        return {(each.partition(), each.value()) for each in read_to_end(self.kafka.config, self.output)}

    def committed(self) -> int | None:
        """Return what a stable read of the group sees; None: it waits."""
        try:
            found = self.offset_store.committed(self.reader, [self.input], STABLE_S)
        except KafkaException:
            return None
        return found[self.input].offset if found else -1

    def end(self) -> list[tuple[Decision, set[str]]]:
        ended = end_hanging(self.kafka.config, [self.name], self.group, [self.output])
        return [(each.decision, {self.place(where) for where in each.partitions}) for each in ended]

    def place(self, partition: TopicPartition) -> str:
        return "offsets" if partition.topic == CONSUMER_OFFSETS else f"output {partition.partition}"

    def close(self) -> None:
        self.reader.close()


OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)
STATE = TopicPartition(TRANSACTION_STATE, 0)
ALL = ("offsets", "output 0", "output 1")

LOST: dict[str, tuple[list[bool], tuple[str, ...]]] = {
    "commit, all": ([True, True], ALL),
    "commit, offsets": ([True, True], ("offsets",)),
    "commit, output": ([True, True], ("output 1",)),
    "abort, all": ([True, False, False], ALL),
    "abort, output": ([True, False], ("output 0",)),
    "after an abort": ([True, False, True], ALL),
    "both": ([True], ALL),
    "in pieces": ([True], ALL),
    "compacted": ([True, True], ALL),
    "forgotten": ([True, True], ALL),
    "consumer": ([True, True], ALL),
    "consumer, both": ([True], ALL),
    "batches": ([True, True], ALL),
    "leases": ([True, True], ALL),
    "consumer, abort on an output": ([True, False], ("output 0",)),
    "batches, output": ([True, True], ("output 1",)),
}
"""By name: whether its transactions are committed, and where the marker of the last one is lost."""

TWICE = ("both", "consumer, both")
"""Those whose commit lost its markers, and then, after a restart, an abort as well."""

UNDONE = "in pieces"
"""The one whose commit lost its markers, and an abort of its outputs followed: that is what a producer does which
survives the restart and fails then."""


def await_ends(kafka: RunningKafka, stories: Iterable[Story]) -> None:
    with TransactionRequests(kafka.config, 30) as requests:
        for story in stories:
            assert wait_until(partial(story.is_over, requests), 30)


def lose(story: Story, places: Iterable[str]) -> None:
    """Lose the last marker of each place, while the broker is down."""
    for place in places:
        where = OFFSETS if place == "offsets" else TopicPartition(story.output, int(place[-1]))
        lost_markers.lose(story.kafka.local, where, last_marker(story.producer_id))


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Story]]:
    """One broker that was restarted after each story had been written, and its markers lost."""
    with LocalKafka(tmp_path_factory.mktemp("hanging")) as local:
        kafka = RunningKafka(local=local, config=KafkaConfig({"bootstrap.servers": local.bootstrap_servers}))
        with ThreadPoolExecutor() as pool:
            told = dict(zip(LOST, pool.map(lambda _: Story(kafka), LOST), strict=True))
            list(pool.map(lambda name: told[name].transact_all(LOST[name][0]), LOST))
        await_ends(kafka, told.values())
        local.stop_node(1)
        for name in (*TWICE, UNDONE):
            lose(told[name], LOST[name][1])
        local.start_node(1)
        told[UNDONE].connect()
        told[UNDONE].undo_outputs()
        for name in TWICE:
            told[name].connect()
            told[name].transact(2, commit=False)
        await_ends(kafka, [told[name] for name in TWICE])
        local.stop_node(1)
        for name, story in told.items():
            if name != UNDONE:
                lose(story, LOST[name][1])
        lost_markers.lose(local, STATE, containing(told["compacted"].name.encode()))
        lost_markers.lose(local, STATE, every(told["forgotten"].name.encode()))
        local.start_node(1)
        yield told.__getitem__
        for story in told.values():
            story.close()


def test_a_commit_whose_markers_are_lost_is_completed(stories: Callable[[str], Story]) -> None:
    story = stories("commit, all")
    assert story.committed() is None
    assert story.end() == [(Decision.COMMIT, set(ALL))]
    assert story.committed() == 2
    assert story.outputs() == {(0, b"1"), (1, b"1"), (0, b"2"), (1, b"2")}
    assert story.end() == []


@pytest.mark.parametrize(("name", "place"), [("commit, offsets", "offsets"), ("commit, output", "output 1")])
def test_a_commit_that_lost_one_marker_is_completed_there(
    stories: Callable[[str], Story], name: str, place: str
) -> None:
    story = stories(name)
    assert story.end() == [(Decision.COMMIT, {place})]
    assert story.committed() == 2
    assert story.outputs() == {(0, b"1"), (1, b"1"), (0, b"2"), (1, b"2")}


def test_a_commit_after_an_abort_is_completed(stories: Callable[[str], Story]) -> None:
    """The abort has its markers: all that is open was written under one leader."""
    story = stories("after an abort")
    assert story.end() == [(Decision.COMMIT, set(ALL))]
    assert story.committed() == 3
    assert story.outputs() == {(0, b"1"), (1, b"1"), (0, b"3"), (1, b"3")}


@pytest.mark.parametrize(("name", "places"), [("abort, all", set(ALL)), ("abort, output", {"output 0"})])
def test_an_abort_whose_markers_are_lost_stays_one(
    stories: Callable[[str], Story], name: str, places: set[str]
) -> None:
    story = stories(name)
    assert story.end() == [(Decision.ABORT, places)]
    assert story.committed() == 1
    assert story.outputs() == {(0, b"1"), (1, b"1")}


@pytest.mark.parametrize(("name", "why"), [("both", "differently"), ("compacted", "no decision about it is kept")])
def test_what_was_decided_is_not_guessed(stories: Callable[[str], Story], name: str, why: str) -> None:
    story = stories(name)
    with pytest.raises(HangingTransaction, match=why) as caught:
        story.end()
    assert {story.place(TopicPartition(*each)) for each in caught.value.partitions} == set(ALL)
    assert caught.value.transactional_id == story.name
    assert f"abort --topic {story.output} --partition 1 --start-offset" in str(caught.value)
    assert story.committed() is None


@pytest.mark.parametrize(
    "error", [TopicNotFound("no __transaction_state", topic="__transaction_state"), NotAuthorized("not permitted")]
)
def test_decisions_that_cannot_be_read_are_not_guessed(
    stories: Callable[[str], Story], monkeypatch: pytest.MonkeyPatch, error: KafkaError
) -> None:
    """Redpanda keeps them elsewhere."""

    def unreadable(*_: object) -> list[Decided]:
        raise error

    monkeypatch.setattr(hanging_transactions, "decisions", unreadable)
    with pytest.raises(HangingTransaction, match="the coordinator's log cannot be read"):
        stories("compacted").end()


def test_a_commit_that_is_in_pieces_is_not_completed(stories: Callable[[str], Story]) -> None:
    """Its outputs were aborted by a later transaction, so that its progress would be without them."""
    story = stories(UNDONE)
    assert story.outputs() == set()
    with pytest.raises(HangingTransaction, match="may have decided about a part of it"):
        story.end()
    assert story.committed() is None


def test_a_transaction_that_nobody_owns_is_named(stories: Callable[[str], Story]) -> None:
    """The coordinator has forgotten the id, or the job had another one when it wrote these offsets."""
    story = stories("forgotten")
    assert story.end() == []
    with pytest.raises(HangingTransaction, match="not one that this job writes its progress under") as caught:
        require_no_hanging_transaction(story.kafka.config, story.group)
    assert caught.value.partitions == (OFFSETS,)


def test_a_transaction_that_is_under_way_is_left_alone(stories: Callable[[str], Story]) -> None:
    story = Story(stories("commit, all").kafka)
    story.transact(1)
    story.begin(2)
    assert story.end() == []
    assert story.committed() is None
    story.producer.commit_transaction(30)
    assert wait_until(lambda: story.committed() == 2, 10)
    story.close()


def options(story: Story) -> ConsumerOptions:
    return ConsumerOptions(
        topics=(story.input.topic,),
        group_id=story.group,
        delivery=Delivery.EXACTLY_ONCE,
        commit_interval_ms=20,
        kafka=story.kafka.config.properties,
    )


@pytest.mark.parametrize(
    ("name", "begin"),
    [pytest.param("consumer", 2, id="commit"), pytest.param("consumer, abort on an output", 1, id="abort")],
)
def test_a_consumer_goes_on_where_the_lost_markers_would_have_led(
    stories: Callable[[str], Story], name: str, begin: int
) -> None:
    """The next commit of its id would else publish what was aborted, beside what came of its records since."""
    story = stories(name)
    output_topics[story.group].add(story.output)  # as a consumer in this process did, before the broker went
    produce_all(story.kafka.config, story.input.topic, [(b"key", b"%d" % each, None, None) for each in range(4)])
    consumer = ParallelConsumer(options(story))

    def copy(record: ConsumedRecord) -> Output:
        return Output(story.output, b"of %d" % record.offset, partition=0)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(consumer.run, copy)
        assert wait_until(lambda: story.committed() == 4 or running.done(), 30)
        [partition] = consumer.health().partitions
        assert partition.counts.hangs == 1
        consumer.stop()
        running.result()
    left = {(partition, b"%d" % each) for each in range(1, begin + 1) for partition in (0, 1)}
    assert story.outputs() == left | {(0, b"of %d" % each) for each in range(begin, 4)}


def test_a_consumer_stops_where_an_operator_has_to_decide(stories: Callable[[str], Story]) -> None:
    story = stories("consumer, both")
    consumer = ParallelConsumer(options(story))
    with pytest.raises(HangingTransaction, match=r"kafka-transactions\.sh"):
        consumer.run(lambda _: None)
    assert consumer.health().state is State.FAILED
    assert isinstance(consumer.health().failure, HangingTransaction)


@pytest.mark.parametrize("name", ["batches", "batches, output"])
def test_a_batch_begins_once_the_lost_markers_are_written(stories: Callable[[str], Story], name: str) -> None:
    story = stories(name)
    transactions = BatchTransactions(story.kafka.config, story.group, story.group, {}, [story.output])
    with transactions.open([story.input]) as transaction:
        assert transaction.progress[story.input].offset == 2
        transaction.commit({story.input: CommittedOffset(3)})
    assert transactions.hangs == {0: 1}
    transactions.close()
    assert wait_until(lambda: story.committed() == 3, 10)


def test_the_progress_of_leases_is_read_once_the_lost_markers_are_written(
    stories: Callable[[str], Story], caplog: pytest.LogCaptureFixture
) -> None:
    story = stories("leases")
    progress = GroupOffsets(story.kafka.config, story.group, story.group, keeps_maps=True)
    assert progress.committed([story.input]) == {story.input: 2}
    assert f"{CONSUMER_OFFSETS} [0]" in caplog.text
    progress.close()
