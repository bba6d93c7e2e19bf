"""Dead dead letters on a real broker, written again: each once, in the order of its key, also after a kill."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from wasmline import dead_letters, provenance
from wasmline.cli import main
from wasmline.clock import now_ms
from wasmline.control import (
    ChangeCause,
    DeadLetterSelection,
    Deployment,
    DeploymentSpec,
    DeploymentTopic,
    Redrive,
    RedriveTopic,
    RedriveWriter,
    deploy,
)
from wasmline.control.control_topics import REDRIVES
from wasmline.digests import digest_of
from wasmline.documents import encode
from wasmline.errors import (
    BrokerUnavailable,
    Conflict,
    DeploymentNotFound,
    DeploymentPaused,
    InvalidRedrive,
    OffsetOutOfRange,
    TopicNotFound,
    UnsupportedSpecVersion,
    WasmlineError,
)
from wasmline.kafka import CompactedTopic, KafkaConfig, RecordWriter, Topics, TransactionalWriter, read_to_end
from wasmline.lineage.record_headers import origin_of
from wasmline.redrive import DeadLetterReader, plan_redrive, redrive_run, run_redrive, transform_outputs
from wasmline.redrive.redrive_run import REJECTED
from wasmline.redrive.source_records import (
    EXPIRED,
    INTERNAL_TOPIC,
    NO_SOURCE,
    NO_TOPIC,
    NOT_UTF8,
    RECORD_GONE,
    STRANGE_SOURCE,
    TOO_LARGE,
    SourceRecords,
)
from wasmline.testing import guests
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition

LETTERS = 460
KEYS = 23

TRAP_AT_ODD_OFFSETS = (
    f"(if (i64.eqz (i64.sub (i64.and (i64.load (i32.const {guests.OFFSET})) (i64.const 1)) (i64.const 1)))"
    "(then (unreachable)))"
)

NOW = now_ms() - 60_000

CAUSE = ChangeCause(reason="the parser is mended", by="ada", run="redrive/manual__1")


class Written(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[dead_letters.Header]
    timestamp: int


class Topic:
    """A dead-letter topic, and the topic that its dead letters come from."""

    def __init__(self, kafka: RunningKafka, partitions: int = 2) -> None:
        self.config = kafka.config
        self.source = kafka.topic(partitions=partitions)
        self.name = kafka.topic(partitions=partitions)
        self.transform = f"t-{uuid.uuid4().hex[:8]}"

    def letter(
        self, number: int, *, source: str | None = None, error: str = "GuestTrap", transform: str = ""
    ) -> tuple[bytes | None, bytes | None, list[dead_letters.Header], int]:
        """Return the dead letter of a record, whose offset is its number."""
        key = b"key-%d" % (number % KEYS)
        origin = dead_letters.origin(transform=f"{transform or self.transform}@1.0.0", digest="sha256:aa")
        place = dead_letters.provenance(origin, TopicPartition(source or self.source, number % KEYS % 2), number)
        failure = dead_letters.failure(error=error, reason=f"no: {number}")
        return key, b"%d" % number, [("trace", b"%d" % number), *failure, *place], NOW + number

    def fill(self, letters: Iterable[tuple[Any, ...]]) -> None:
        with closing(RecordWriter(self.config)) as writer:
            writer.write(self.name, letters)

    def redrive(self, selection: DeadLetterSelection | None = None, **options: Any) -> Redrive:
        plan = plan_redrive(self.config, self.name, selection, **options)
        return run_redrive(self.config, plan, cause=CAUSE)

    def pending(self) -> int:
        reader = DeadLetterReader(self.config, self.name)
        state = reader.state()
        return sum(not state.is_redriven(each.topic_partition.partition, each.offset) for each in reader.read())

    def deploy(self, target: str, snippet: str = guests.WRITE, **fields: Any) -> Deployment:
        wasm = guests.guest(snippet)
        spec = DeploymentSpec(
            name=self.transform,
            version="2.0.0",
            digest=digest_of(wasm),
            input_topic=self.source,
            output_topics=(target,),
            **{"dead_letter_topic": self.name, **fields},
        )
        return deploy(self.config, spec, wasm)


@pytest.fixture
def letters(kafka: RunningKafka) -> Topic:
    return Topic(kafka)


def written(config: KafkaConfig, topic: str) -> list[Written]:
    return [
        Written(each.partition() or 0, each.key(), each.value(), list(each.headers() or []), each.timestamp()[1])  # type: ignore[arg-type]
        for each in read_to_end(config, topic)
    ]


def numbers_by_key(records: Iterable[Written]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for each in records:
        found[each.key or b""].append(int(each.value or b""))
    return found


def require_each_once_in_order(records: Sequence[Written], count: int = LETTERS) -> None:
    assert sorted(int(each.value or b"") for each in records) == list(range(count))
    assert all(numbers == sorted(numbers) for numbers in numbers_by_key(records).values())


# -- back to the topics that they come from -------------------------------------------------------------------------


def test_letters_go_back_once_in_order_as_they_were_and_say_where_they_come_from(letters: Topic) -> None:
    letters.fill(map(letters.letter, range(LETTERS)))
    done = letters.redrive()
    assert (done.dead_letters, done.skipped, done.state, done.cause) == (LETTERS, {}, "done", CAUSE)
    records = written(letters.config, letters.source)
    require_each_once_in_order(records)
    reader = DeadLetterReader(letters.config, letters.name)
    stored = {(each.topic_partition.partition, each.offset): each for each in reader.read()}
    for each in records:
        number = int(each.value or b"")
        assert (each.partition, each.timestamp) == (number % KEYS % 2, NOW + number)
        assert [name for name, _ in each.headers] == ["trace", dead_letters.REDRIVEN]
        position = origin_of(each.headers).source
        assert position is not None
        letter = stored[position.partition, position.offset]
        assert (position.topic, letter.value, letter.failure.offset) == (letters.name, each.value, number)
    again = letters.redrive()
    assert (again.dead_letters, letters.pending()) == (0, 0)
    assert len(written(letters.config, letters.source)) == LETTERS


def test_a_redrive_takes_the_letters_that_came_since_the_last_one(letters: Topic) -> None:
    for first in (0, 5):
        letters.fill(map(letters.letter, range(first, first + 5)))
        assert letters.redrive().dead_letters == 5
    require_each_once_in_order(written(letters.config, letters.source), 10)


def test_letters_are_selected_and_the_others_stay_pending(letters: Topic) -> None:
    letters.fill(letters.letter(number, error=["GuestTrap", "Rejected"][number % 2]) for number in range(20))
    letters.fill(letters.letter(number, transform="other") for number in range(20, 25))
    assert letters.redrive(DeadLetterSelection(error="Rejected", transform=letters.transform)).dead_letters == 10
    assert letters.pending() == 15
    assert letters.redrive(DeadLetterSelection(reason_contains="no: 24")).dead_letters == 1
    assert letters.redrive(DeadLetterSelection(source_topic="another")).dead_letters == 0
    assert letters.redrive(DeadLetterSelection(transform="other")).dead_letters == 4
    assert letters.redrive().dead_letters == 10
    require_each_once_in_order(sorted(written(letters.config, letters.source), key=lambda each: each.timestamp), 25)


def test_letters_go_to_another_topic_where_the_key_selects_the_partition(letters: Topic, kafka: RunningKafka) -> None:
    target = kafka.topic(partitions=3)
    letters.fill(map(letters.letter, range(50)))
    letters.fill([(None, b"50", [("wasmline.reason", b"of a guest inside a broker")], 0)])
    done = letters.redrive(to_topic=target)
    assert (done.dead_letters, done.to_topic) == (51, target)
    records = written(letters.config, target)
    partitions = defaultdict(set)
    for each in records:
        partitions[each.key].add(each.partition)
    assert all(len(found) == 1 for key, found in partitions.items() if key)
    assert sorted(int(each.value or b"") for each in records) == list(range(51))


def test_what_cannot_go_back_is_named_and_stays_pending(letters: Topic, kafka: RunningKafka) -> None:
    small = kafka.topic(max_message_bytes="200")
    cut = [*letters.letter(3)[2], (dead_letters.TRUNCATED, b"7")]
    letters.fill(
        [
            (b"k", b"v", [("wasmline.reason", b"of a guest inside a broker")], 0),
            letters.letter(1, source="missing"),
            (b"k", b"x" * 300, letters.letter(0, source=small)[2], 0),
            (b"key-3", None, cut, 0),
            letters.letter(4),
        ]
    )
    done = letters.redrive()
    assert done.skipped == {NO_SOURCE: 1, NO_TOPIC: 1, TOO_LARGE: 1, RECORD_GONE: 1}
    assert (done.dead_letters, letters.pending()) == (1, 4)
    assert letters.redrive().skipped == done.skipped


def test_a_truncated_letter_goes_back_whole_while_its_record_is_there(letters: Topic) -> None:
    with closing(RecordWriter(letters.config)) as writer:
        writer.write(letters.source, [(b"k0", b"other", [("h", b"1")], None), (b"k", b"value", [("h", b"1")], None)])
    at = {each.key: (each.partition, 0) for each in written(letters.config, letters.source)}
    if at[b"k0"][0] == at[b"k"][0]:
        at[b"k"] = (at[b"k"][0], 1)
    place = dead_letters.coordinates(TopicPartition(letters.source, at[b"k"][0]), at[b"k"][1])
    letter = dead_letters.failed(b"k", b"value", [], ValueError("no"), place).truncated(8)
    another = dead_letters.failed(b"k", b"valued", [], ValueError("no"), place).truncated(9)  # not the record there
    letters.fill((each.key, each.value, each.headers, None) for each in (letter, another))
    done = letters.redrive()
    assert (done.dead_letters, done.skipped) == (1, {RECORD_GONE: 1})
    *_, last = (each for each in written(letters.config, letters.source) if each.key == b"k")
    assert (last.value, last.headers[0], last.headers[1][0]) == (b"value", ("h", b"1"), dead_letters.REDRIVEN)


def test_any_record_goes_back_as_it_was(letters: Topic) -> None:
    place = letters.letter(0)[2][1:]
    records: list[tuple[bytes | None, bytes | None, list[dead_letters.Header]]] = [
        (None, None, []),
        (b"", b"", [("", b""), ("h", None), ("h", b"\xff")]),
        (b"t", b"whole", [(dead_letters.TRUNCATED, b"5")]),
        (b"\x00\xff", b"x" * 900_000, [(dead_letters.REASON, b"its own"), (dead_letters.REDRIVEN, b"earlier-0@1")]),
    ]
    letters.fill((key, value, [*headers, *place], 0) for key, value, headers in records)
    assert letters.redrive().dead_letters == 4
    found = {each.value: each for each in written(letters.config, letters.source)}
    for key, value, headers in records:
        assert (found[value].key, found[value].headers[:-1]) == (key, headers)


def test_a_record_that_just_fits_goes_back_without_the_header_that_names_its_letter(kafka: RunningKafka) -> None:
    letters = Topic(kafka)
    letters.source = kafka.topic(max_message_bytes="400")
    key, _, headers, time = letters.letter(0)
    letters.fill([(key, b"x" * 300, headers, time)])
    assert letters.redrive().dead_letters == 1
    [record] = written(letters.config, letters.source)
    assert [name for name, _ in record.headers] == ["trace"]


def test_many_letters_for_a_topic_of_small_messages_fit(kafka: RunningKafka) -> None:
    letters = Topic(kafka)
    letters.source = kafka.topic(max_message_bytes="2000")
    letters.fill(letters.letter(number) for number in range(300))
    assert letters.redrive().dead_letters == 300


def test_a_header_whose_name_is_not_utf8_leaves_its_letter_pending(letters: Topic) -> None:
    letters.fill([letters.letter(0)])
    [letter] = DeadLetterReader(letters.config, letters.name).read()
    records = SourceRecords(letters.config, None, "keep", letters.name)
    assert records.convert([letter._replace(headers=None)]).skipped == {NOT_UTF8: 1}


def test_a_source_that_a_writer_made_up_cannot_lead_to_an_internal_topic(letters: Topic) -> None:
    topics = ("_wasmline.deployments", "__consumer_offsets", letters.name)
    letters.fill(letters.letter(number, source=topic) for number, topic in enumerate(topics))
    assert letters.redrive().skipped == {INTERNAL_TOPIC: 3}
    with pytest.raises(InvalidRedrive, match="can be written to _wasmline"):
        letters.redrive(to_topic="_wasmline.jobs")


def test_a_record_that_its_topic_rejects_holds_up_no_other(letters: Topic, kafka: RunningKafka) -> None:
    target = kafka.topic(cleanup_policy="compact")
    letters.fill(letters.letter(number) for number in range(5))
    letters.fill([(None, b"no key for a compacted topic", letters.letter(0)[2], None)])
    letters.fill(letters.letter(number) for number in range(5, 10))
    done = letters.redrive(to_topic=target)
    assert (done.dead_letters, done.skipped, letters.pending()) == (10, {REJECTED: 1}, 1)
    assert len(written(letters.config, target)) == 10


def test_a_record_older_than_its_topic_keeps_goes_back_with_the_current_time_only(
    letters: Topic, kafka: RunningKafka
) -> None:
    letters.source = kafka.topic(retention_ms="30000")
    letters.fill([letters.letter(0)])
    assert letters.redrive().skipped == {EXPIRED: 1}
    assert letters.redrive(timestamps="now").dead_letters == 1
    [record] = written(letters.config, letters.source)
    assert record.timestamp > NOW + 50_000


def test_some_letters_are_redriven_first_and_one_by_its_position(letters: Topic) -> None:
    letters.fill(map(letters.letter, range(30)))
    assert letters.redrive(limit=4).dead_letters == 4
    reader = DeadLetterReader(letters.config, letters.name)
    *_, last = reader.pending(DeadLetterSelection(), reader.state())
    one = DeadLetterSelection(partition=last.topic_partition.partition, offset=last.offset)
    assert letters.redrive(one).dead_letters == 1
    assert letters.redrive().dead_letters == 25
    assert len(written(letters.config, letters.source)) == 30


def test_a_limit_does_not_count_what_cannot_be_redriven(letters: Topic) -> None:
    letters.fill([(b"k", b"no source", [], None)] * 3)
    letters.fill(map(letters.letter, range(10)))
    done = letters.redrive(limit=4)
    assert (done.dead_letters, len(written(letters.config, letters.source))) == (4, 4)
    assert letters.redrive(limit=7).dead_letters == 6


def test_a_redrive_of_nothing_does_not_begin_and_says_so_in_json(letters: Topic) -> None:
    arguments = ["redrive", letters.name, "--to-source", "--reason", "none", "--json"]
    assert json.loads(run(letters, *arguments).stdout) == {"topic": letters.name, "pending": 0, "dead_letters": 0}
    assert _keys(letters) == []
    letters.fill([letters.letter(0)])
    assert json.loads(run(letters, *arguments, "--dry-run").stdout)["pending"] == 1


# -- through a transform ----------------------------------------------------------------------------------------------


def test_letters_go_through_the_new_version_and_those_that_fail_again_are_letters_again(
    letters: Topic, kafka: RunningKafka
) -> None:
    target = kafka.topic(partitions=3)
    deployed = letters.deploy(target, TRAP_AT_ODD_OFFSETS + guests.WRITE)
    letters.fill(map(letters.letter, range(LETTERS)))
    letters.fill([letters.letter(LETTERS, transform="other"), letters.letter(LETTERS, source="elsewhere")])
    done = letters.redrive(through=letters.transform)
    assert (done.dead_letters, done.outputs, done.failed_again) == (LETTERS, LETTERS // 2, LETTERS // 2)
    assert (done.through, done.generation, done.skipped) == (letters.transform, deployed.generation, {})
    outputs = written(letters.config, target)
    assert sorted(int(each.value or b"") for each in outputs) == list(range(0, LETTERS, 2))
    assert all(numbers == sorted(numbers) for numbers in numbers_by_key(outputs).values())
    for each in outputs:
        origin = origin_of(each.headers)
        number = int(each.value or b"")
        assert origin.source is not None
        assert (origin.source.topic, origin.source.offset) == (letters.source, number)
        assert (origin.transform, each.timestamp) == ((letters.transform, "2.0.0"), NOW + number)
        assert [name for name, _ in each.headers] == ["trace", provenance.NAME]

    failed = list(DeadLetterReader(letters.config, letters.name).read())[-LETTERS // 2 :]
    assert letters.pending() == LETTERS // 2 + 2
    again = [letter for letter in failed if letter.failure.version == "2.0.0"]
    assert {letter.failure.offset for letter in again} <= set(range(1, LETTERS, 2))

    letters.deploy(target, guests.TRAP)
    done = letters.redrive(through=letters.transform)
    assert (done.outputs, done.failed_again) == (0, LETTERS // 2), "all of them, and the redrive goes to its end"

    letters.deploy(target)
    done = letters.redrive(through=letters.transform)
    assert (done.dead_letters, done.outputs, done.failed_again) == (LETTERS // 2, LETTERS // 2, 0)
    require_each_once_in_order(sorted(written(letters.config, target), key=lambda each: each.timestamp))


def test_large_outputs_of_many_letters_take_several_transactions_and_are_compressed_as_those_of_a_job(
    letters: Topic, kafka: RunningKafka
) -> None:
    target = kafka.topic(max_message_bytes="20000")
    letters.deploy(target, guests.WRITE * 8, compression="zstd")
    letters.fill((b"%d" % number, b"x" * 100_000, letters.letter(number)[2], None) for number in range(20))
    done = letters.redrive(through=letters.transform)
    assert (done.dead_letters, done.outputs, done.failed_again) == (20, 160, 0)


def test_many_outputs_of_many_letters_take_several_transactions(
    letters: Topic, kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transform_outputs, "MAX_OUTPUTS", 20)
    letters.deploy(kafka.topic(), guests.WRITE * 8)
    letters.fill(letters.letter(number) for number in range(10))
    plan = plan_redrive(letters.config, letters.name, through=letters.transform)
    counts: list[int] = []
    run_redrive(letters.config, plan, progress=lambda done: counts.append(done.outputs))
    assert max(after - before for before, after in itertools.pairwise([0, *counts])) <= 20
    assert counts[-1] == 80


def test_a_redrive_through_a_transform_needs_one_that_can_take_letters(letters: Topic, kafka: RunningKafka) -> None:
    with pytest.raises(DeploymentNotFound):
        letters.redrive(through=letters.transform)
    target = kafka.topic()
    letters.deploy(target, dead_letter_topic=None)
    with pytest.raises(InvalidRedrive, match="has no dead-letter topic"):
        letters.redrive(through=letters.transform)
    letters.deploy(target)
    with pytest.raises(InvalidRedrive, match="and no records of returns"):
        letters.redrive(DeadLetterSelection(source_topic="returns"), through=letters.transform)
    with closing(DeploymentTopic(letters.config)) as deployments:
        deployments.pause(letters.transform, "it is wrong")
    with pytest.raises(DeploymentPaused, match="it is wrong"):
        letters.redrive(through=letters.transform)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"to_topic": "missing-topic"}, TopicNotFound),
        ({"to_topic": "t", "through": "u"}, InvalidRedrive),
    ],
)
def test_a_redrive_to_nowhere_is_refused(letters: Topic, options: dict[str, Any], error: type[WasmlineError]) -> None:
    with pytest.raises(error):
        letters.redrive(**options)
    with pytest.raises(InvalidRedrive, match="can be written to test-"):
        letters.redrive(to_topic=letters.name)
    with pytest.raises(TopicNotFound):
        plan_redrive(letters.config, "missing-topic")


# -- ends on the way ---------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from wasmline.kafka import KafkaConfig, compacted_topic
from wasmline.redrive import plan_redrive, redrive_run

topic, transform, transactions, moment = sys.argv[1], sys.argv[2] or None, int(sys.argv[3]), sys.argv[4]
redrive_run.MAX_TRANSACTION_DEAD_LETTERS = 20
made = 0

class Producer(compacted_topic.ReconnectingProducer):
    def commit_transaction(self, *args):
        global made
        made += 1
        self.flush(10)
        if made == transactions and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit_transaction(*args)
        if made == transactions:
            os.kill(os.getpid(), signal.SIGKILL)

compacted_topic.ReconnectingProducer = Producer
config = KafkaConfig.from_environment()
redrive_run.run_redrive(config, plan_redrive(config, topic, through=transform))
"""


@pytest.mark.parametrize(
    ("through", "rounds"),
    [
        pytest.param(False, 1, id="back"),
        pytest.param(False, 3, id="back, often", marks=pytest.mark.long),
        pytest.param(True, 3, id="through the transform", marks=pytest.mark.long),
    ],
)
def test_a_redrive_that_is_killed_and_run_again_redrives_each_letter_once(
    letters: Topic, kafka: RunningKafka, through: bool, rounds: int
) -> None:
    """The kills come before, and after, the commit of a transaction. The next run waits for the end of an open one."""
    target = kafka.topic(partitions=2) if through else letters.source
    if through:
        letters.deploy(target)
    letters.fill(map(letters.letter, range(LETTERS)))
    environment = {**os.environ, "WASMLINE_KAFKA_CONFIG": json.dumps(dict(letters.config.properties))}
    transform = letters.transform if through else ""
    made = 0
    for number, moment in enumerate(["before", "after"] * rounds, 1):
        command = [sys.executable, "-c", KILLED, letters.name, transform, str(number), moment]
        killed = subprocess.run(command, env=environment, timeout=120, capture_output=True, check=False)
        assert killed.returncode == -9, killed.stderr.decode()
        made += number - (moment == "before")
    assert letters.pending() == LETTERS - made * 20
    done = letters.redrive(through=letters.transform if through else None)
    assert done.dead_letters == LETTERS - made * 20
    require_each_once_in_order(written(letters.config, target))


def test_a_redrive_that_gets_no_answer_tries_again_and_redrives_each_letter_once(
    letters: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost before the transaction is made, and after it."""
    letters.fill(map(letters.letter, range(100)))
    monkeypatch.setattr(redrive_run, "MAX_TRANSACTION_DEAD_LETTERS", 20)
    write, calls = TransactionalWriter.write, itertools.count()

    def unanswered(writer: TransactionalWriter, *records: Any) -> None:
        call = next(calls)
        if call != 1:
            write(writer, *records)
        if call in (1, 3):
            raise BrokerUnavailable("no answer", bootstrap_servers="b:1")

    monkeypatch.setattr(TransactionalWriter, "write", unanswered)
    done = letters.redrive()
    assert (done.dead_letters, done.state) == (100, "done")
    require_each_once_in_order(written(letters.config, letters.source), 100)


def test_of_two_redrives_of_a_topic_the_newer_one_goes_on(letters: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    letters.fill(map(letters.letter, range(100)))
    monkeypatch.setattr(redrive_run, "MAX_TRANSACTION_DEAD_LETTERS", 20)
    plan = plan_redrive(letters.config, letters.name)
    newer: list[Redrive] = []

    def interrupted(done: Redrive) -> None:
        if done.dead_letters == 40 and not newer:
            newer.append(letters.redrive())

    with pytest.raises(Conflict, match="another redrive"):
        run_redrive(letters.config, plan, progress=interrupted)
    assert newer[0].dead_letters == 60
    require_each_once_in_order(written(letters.config, letters.source), 100)


def test_a_redrive_that_tries_again_leaves_the_topic_to_one_that_began_meanwhile(
    letters: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters.fill(map(letters.letter, range(20)))
    write, newer = TransactionalWriter.write, list[Redrive]()

    def unanswered(writer: TransactionalWriter, *records: Any) -> None:
        if not newer:
            monkeypatch.undo()
            newer.append(letters.redrive())
            raise BrokerUnavailable("no answer", bootstrap_servers="b:1")
        write(writer, *records)

    monkeypatch.setattr(TransactionalWriter, "write", unanswered)
    with pytest.raises(Conflict, match="another redrive"):
        letters.redrive()
    assert newer[0].dead_letters == 20


def test_a_redrive_that_tries_again_does_not_fence_one_that_is_under_way(
    letters: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters.fill(map(letters.letter, range(60)))
    monkeypatch.setattr(redrive_run, "MAX_TRANSACTION_DEAD_LETTERS", 20)
    plan = plan_redrive(letters.config, letters.name)
    write, is_first = TransactionalWriter.write, itertools.count()
    is_on_its_way, older_ended = threading.Event(), threading.Event()

    def on_its_way(_: Redrive) -> None:
        is_on_its_way.set()
        assert older_ended.wait(60)

    def unanswered(writer: TransactionalWriter, *records: Any) -> None:
        if next(is_first) == 0:
            newer.append(thread.submit(run_redrive, letters.config, plan, progress=on_its_way))
            assert is_on_its_way.wait(60)
            raise BrokerUnavailable("no answer", bootstrap_servers="b:1")
        write(writer, *records)

    newer: list[Future[Redrive]] = []
    monkeypatch.setattr(TransactionalWriter, "write", unanswered)
    with ThreadPoolExecutor(1) as thread:
        try:
            with pytest.raises(Conflict, match="another redrive"):
                run_redrive(letters.config, plan)
        finally:
            older_ended.set()
        assert newer[0].result().dead_letters == 60
    require_each_once_in_order(written(letters.config, letters.source), 60)


def test_a_redrive_through_a_transform_ends_when_that_is_paused_or_replaced(
    letters: Topic, kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = kafka.topic()
    letters.deploy(target)
    letters.fill(map(letters.letter, range(60)))
    monkeypatch.setattr(redrive_run, "MAX_TRANSACTION_DEAD_LETTERS", 20)

    def redrive(meanwhile: Callable[[], object]) -> Redrive:
        def on_progress(_: Redrive) -> None:
            meanwhile()

        plan = plan_redrive(letters.config, letters.name, through=letters.transform)
        return run_redrive(letters.config, plan, redrive_id="dag/run", progress=on_progress)

    with closing(DeploymentTopic(letters.config)) as deployments:
        with pytest.raises(DeploymentPaused, match="wrong outputs"):
            redrive(lambda: deployments.pause(letters.transform, "wrong outputs"))
        assert letters.pending() == 40
        deployments.resume(letters.transform)
    with pytest.raises(Conflict, match="has generation 2 by now"):
        redrive(lambda: letters.deploy(target, guests.WRITE + "(nop)"))
    assert letters.pending() == 20
    assert redrive(lambda: None).dead_letters == 60
    require_each_once_in_order(written(letters.config, target), 60)


def test_a_redrive_of_the_same_id_tries_again_what_it_has_skipped(letters: Topic, kafka: RunningKafka) -> None:
    source = f"{letters.name}.later"
    letters.fill(letters.letter(number, source=source) for number in range(3))
    plan = plan_redrive(letters.config, letters.name)
    assert run_redrive(letters.config, plan, redrive_id="dag/run").skipped == {NO_TOPIC: 3}
    Topics(letters.config).create(source, 1)
    done = run_redrive(letters.config, plan, redrive_id="dag/run")
    assert (done.dead_letters, done.skipped, done.state) == (3, {}, "done")
    assert len(written(letters.config, source)) == 3


def test_what_a_list_counts_selects_the_same_letters(letters: Topic) -> None:
    letters.fill(letters.letter(number, error=["GuestTrap", "Rejected"][number % 3 == 0]) for number in range(9))
    for selection, count in (
        (DeadLetterSelection(error="Rejected: no"), 3),
        (DeadLetterSelection(error="Rejected"), 3),
        (DeadLetterSelection(transform=f"{letters.transform}@1.0.0"), 9),
        (DeadLetterSelection(transform=f"{letters.transform}@2.0.0"), 0),
    ):
        assert plan_redrive(letters.config, letters.name, selection).dead_letters == count


def test_a_letter_that_names_a_stranger_as_its_source_copies_none_of_its_records(
    letters: Topic, kafka: RunningKafka
) -> None:
    """The record of a truncated letter is read with the rights of whoever redrives."""
    payroll, target = kafka.topic(), kafka.topic()
    with closing(RecordWriter(letters.config)) as writer:
        writer.write(payroll, [(b"k", b"value", [], None)])
    place = dead_letters.coordinates(TopicPartition(payroll, 0), 0)
    letter = dead_letters.failed(b"k", b"value", [], ValueError("no"), place).truncated(6)
    letters.fill([(letter.key, letter.value, letter.headers, None)])
    assert letters.redrive(to_topic=target).skipped == {STRANGE_SOURCE: 1}
    done = letters.redrive(DeadLetterSelection(source_topic=payroll), to_topic=target)
    assert (done.dead_letters, [each.value for each in written(letters.config, target)]) == (1, [b"value"])


def test_a_truncated_letter_of_a_deployment_goes_whole_to_another_topic(letters: Topic, kafka: RunningKafka) -> None:
    letters.deploy(kafka.topic())
    with closing(RecordWriter(letters.config)) as writer:
        writer.write(letters.source, [(b"k", b"value", [], None)])
    [record] = written(letters.config, letters.source)
    place = dead_letters.coordinates(TopicPartition(letters.source, record.partition), 0)
    letter = dead_letters.failed(b"k", b"value", [], ValueError("no"), place).truncated(6)
    letters.fill([(letter.key, letter.value, letter.headers, None)])
    assert letters.redrive(to_topic=(target := kafka.topic())).dead_letters == 1
    assert [each.value for each in written(letters.config, target)] == [b"value"]


def test_offsets_that_cannot_be_read_stop_redrives_and_nothing_else(letters: Topic, kafka: RunningKafka) -> None:
    letters.fill(map(letters.letter, range(3)))
    reader = DeadLetterReader(letters.config, letters.name)
    prefix = f"{letters.name}/{reader.topic.id}/"
    letters.redrive()
    [made] = reader.state().redrives.values()
    records = {"offsets/1/0": b'{"spec_version": 99}', "redrive/other": encode(replace(made, skipped={"x": 1}))}
    with closing(RecordWriter(letters.config)) as writer:
        writer.write(REDRIVES, [(f"{prefix}{key}".encode(), value, None, None) for key, value in records.items()])
    assert reader.state().redrives == {made.id: made}  # the other record is not its own
    with pytest.raises(UnsupportedSpecVersion, match=rf"record {re.escape(prefix)}offsets/1/0 of {REDRIVES}"):
        letters.redrive()
    assert json.loads(run(letters, "list", letters.name, "--json").stdout)[0]["dead_letters"] == 3
    assert len(json.loads(run(letters, "redrives", letters.name, "--json").stdout)) == 1


def test_a_process_that_was_frozen_after_a_rejection_repeats_nothing_of_another_one_with_the_same_id(
    letters: Topic, kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = kafka.topic(cleanup_policy="compact")
    letters.fill(letters.letter(number) for number in range(5))
    letters.fill([(None, b"no key for a compacted topic", letters.letter(0)[2], None)])
    plan = plan_redrive(letters.config, letters.name, to_topic=target)
    reopen, other = redrive_run._RedriveRun._reopen, list[Redrive]()

    def frozen(run: Any) -> None:
        monkeypatch.undo()
        other.append(run_redrive(letters.config, plan, redrive_id="dag/run"))
        reopen(run)

    monkeypatch.setattr(redrive_run._RedriveRun, "_reopen", frozen)
    with pytest.raises(Conflict, match="another redrive"):
        run_redrive(letters.config, plan, redrive_id="dag/run")
    assert (other[0].dead_letters, len(written(letters.config, target))) == (5, 5)


def test_letters_that_retention_removes_meanwhile_are_passed_over(
    letters: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters.fill(map(letters.letter, range(20)))
    read, calls = DeadLetterReader.read, itertools.count()

    def removed(reader: DeadLetterReader, *arguments: Any) -> Any:
        if next(calls) == 1:  # 0 is the plan
            raise OffsetOutOfRange("gone", topic=letters.name, partition=0, offset=0, start=None)
        return read(reader, *arguments)

    monkeypatch.setattr(DeadLetterReader, "read", removed)
    assert letters.redrive().dead_letters == 20


def test_a_redrive_of_the_same_id_is_continued_to_its_own_end_and_not_made_twice(letters: Topic) -> None:
    letters.fill(map(letters.letter, range(10)))
    plan = plan_redrive(letters.config, letters.name)

    def stop(done: Redrive) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_redrive(letters.config, plan, cause=CAUSE, redrive_id="dag/run", progress=stop)
    letters.fill([letters.letter(10)])
    later = plan_redrive(letters.config, letters.name)
    for _ in range(2):
        done = run_redrive(letters.config, later, redrive_id="dag/run")
        assert (done.dead_letters, done.state, done.cause) == (10, "done", CAUSE)
    assert letters.pending() == 1
    with pytest.raises(InvalidRedrive, match="was begun with other dead letters"):
        run_redrive(letters.config, replace(later, selection=DeadLetterSelection(error="x")), redrive_id="dag/run")


def test_a_topic_that_was_created_again_has_no_redriven_letters(letters: Topic) -> None:
    letters.fill(map(letters.letter, range(5)))
    plan = plan_redrive(letters.config, letters.name)
    letters.redrive()
    Topics(letters.config).delete([letters.name])
    Topics(letters.config).create(letters.name, 1)
    letters.fill(map(letters.letter, range(5, 8)))
    with pytest.raises(InvalidRedrive, match="deleted and created again"):
        run_redrive(letters.config, plan)
    assert letters.redrive().dead_letters == 3
    kept = [key for key in _keys(letters) if plan.topic.id.encode() in key]
    assert kept == []


def test_neighbours_are_kept_as_one_range_and_those_that_retention_removed_are_forgotten(letters: Topic) -> None:
    topic = Topics(letters.config).describe(letters.name)
    redrive = redrive_of(letters)
    redrives = RedriveTopic(letters.config)
    with closing(RedriveWriter(letters.config, letters.name)) as writer:
        done = [(0, 5, 3), (0, 7, 6), (0, 9_999, 9_990), (0, 10_004, 9_998), (1, 2, 2)]
        written = writer.write(redrives.read(topic, {0: 0}), redrive, done)
    state = redrives.read(topic, {0: 0})
    assert state == written
    assert state.blocks == {(0, 0): (3, 8, 9_990, 10_000), (0, 1): (10_000, 10_005), (1, 0): (2, 3)}
    assert [offset for offset in range(12) if state.is_redriven(0, offset)] == [3, 4, 5, 6, 7]
    assert state.is_redriven(0, 10_004)
    assert not state.is_redriven(0, 10_005)
    with closing(RedriveWriter(letters.config, letters.name)) as writer:
        writer.write(redrives.read(topic, {0: 10_000}), redrive, [])
    assert not [key for key in _keys(letters) if key.endswith(b"offsets/0/0")]


def redrive_of(letters: Topic) -> Redrive:
    return Redrive(
        id="r", topic=letters.name, topic_id="i", selection=DeadLetterSelection(), ends={}, started_ms=0, updated_ms=0
    )


def _keys(letters: Topic) -> list[bytes]:
    with closing(CompactedTopic(letters.config, REDRIVES)) as table:
        return [key for key in table.read() if key.startswith(letters.name.encode())]


# -- the command line ------------------------------------------------------------------------------------------------


def run(letters: Topic, *arguments: str, status: int = 0) -> Any:
    servers = f"bootstrap.servers={letters.config.bootstrap_servers}"
    result = CliRunner().invoke(main, ["dead-letters", *arguments, "-X", servers])
    assert result.exit_code == status, result.output
    return result


def test_the_command_line_lists_shows_and_redrives(letters: Topic, kafka: RunningKafka) -> None:
    letters.fill(letters.letter(number, error=["GuestTrap", "Rejected"][number % 3 == 0]) for number in range(9))
    letters.deploy(kafka.topic())
    users = {each["topic"]: each["used_by"] for each in json.loads(run(letters, "list", "--json").stdout)}
    assert users[letters.name] == [letters.transform]
    counts = json.loads(run(letters, "list", letters.name, "--json").stdout)
    assert [(each["error"], each["dead_letters"], each["pending"]) for each in counts] == [
        ("GuestTrap", 6, 6),
        ("Rejected: no", 3, 3),
    ]
    assert re.search("GuestTrap .* 6 +6 ", run(letters, "list", letters.name).stdout)
    redrive = ("redrive", letters.name, "--reason", "mended")
    assert "exactly one of" in run(letters, *redrive, status=2).output
    assert "no terminal" in run(letters, *redrive, "--to-source", status=2).output
    assert "--offset needs" in run(letters, *redrive, "--to-source", "--offset", "1", status=2).output
    assert "name the topic" in run(letters, "list", "--pending", status=2).output
    planned = run(letters, *redrive, "--to-source", "--dry-run").stderr
    assert f"6 dead letters of {letters.transform}@1.0.0: GuestTrap, records of {letters.source}" in planned
    done = json.loads(run(letters, *redrive, "--to-source", "--error", "Rejected", "--yes", "--json").stdout)
    assert (done["dead_letters"], done["cause"]["reason"], done["state"]) == (3, "mended", "done")
    detailed = run(letters, "list", letters.name, "--detailed", "--pending", "--limit", "4")
    assert detailed.stdout.count("pending") == 4
    assert "more than 4 dead letters" in detailed.stderr
    listed = json.loads(run(letters, "list", letters.name, "-d", "--json").stdout)
    assert sorted(each["value"] for each in listed if each["state"] == "redriven") == ["0", "3", "6"]
    place, offset = listed[0]["dead_letter"].removeprefix(f"{letters.name}-").split("@")
    assert json.loads(run(letters, "show", letters.name, place, offset, "--json").stdout) == listed[0]
    assert re.search(r"^source +\S+@\d+$", run(letters, "show", letters.name, place, offset).stdout, re.MULTILINE)
    text = run(letters, *redrive, "--through", letters.transform, "-y").stdout
    assert f"6 dead letters of {letters.name} redriven through {letters.transform}: 6 outputs, 0 failed again" in text
    letters.fill([letters.letter(0, source="missing")])
    skipped = run(letters, *redrive, "--to-source", "-y", status=3)
    assert "1 dead letters stay pending: their source topic does not exist" in skipped.stderr
    assert run(letters, "redrives", letters.name).stdout.count("mended") == 3
