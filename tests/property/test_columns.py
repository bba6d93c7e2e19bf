"""Whatever records do, and wherever a consumer ends, columns keep what records promise; either continues the other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from support.consumers.clusters import Memory
from support.consumers.column_handlers import ColumnHandlers
from support.consumers.running_consumer import Running
from wasmline.consumer import ConsumedRecord, ConsumerOptions, NullKeys, Ordering, Output, RetryPolicy
from wasmline.offset_maps import decode
from wasmline.topic_partitions import TopicPartition

FATES = ("one", "one", "one", "one", "none", "two", "fails", "large", "breaks")
MOST_BYTES = 500
PARTITIONS = 2

Fated = tuple[bytes | None, str, int]
"""Key, fate and partition of a record."""

RECORDS = st.lists(
    st.tuples(st.sampled_from([None, b"", b"a", b"b", b"c"]), st.sampled_from(FATES), st.integers(0, PARTITIONS - 1)),
    min_size=1,
    max_size=60,
)


class Copies:
    """Makes of each record what its fate says."""

    def __init__(self, target: str, *, only_records: bool) -> None:
        self._target = target
        self.handlers = ColumnHandlers(self.one, self.refuse)
        self.handlers.takes_columns = not only_records
        self.calls = 0
        self._changed = threading.Condition()

    def one(self, record: ConsumedRecord) -> Sequence[Output]:
        fate, _, name = (record.value or b"").partition(b" ")
        output = Output(self._target, name, record.key, timestamp=1)
        match fate:
            case b"none":
                return []
            case b"two":
                return [output, output._replace(value=name + b"+")]
            case b"fails":
                raise ValueError("it fails")
            case b"large":
                return [output._replace(value=b"x" * 2 * MOST_BYTES)]
        return [output]

    def refuse(self, records: Sequence[ConsumedRecord]) -> None:
        with self._changed:
            self.calls += 1
            self._changed.notify_all()
        if any((record.value or b"").startswith(b"breaks") for record in records):
            raise MemoryError("a call that fails as a whole")

    def wait(self, calls: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.calls >= calls, 0.2)


def is_done(memory: Memory, group: str, topic: str) -> bool:
    committed = memory.committed(group, topic)
    for number in range(PARTITIONS):
        end = memory.cluster.log(TopicPartition(topic, number)).end
        left = committed.get(TopicPartition(topic, number))
        if end and (left is None or left.offset < end or decode(left.metadata, left.offset)[1]):
            return False
    return True


@settings(max_examples=60, deadline=None)
@given(
    records=RECORDS,
    exact=st.booleans(),
    batch_size=st.sampled_from([2, 7, 1_000]),
    concurrency=st.integers(1, 3),
    ordering=st.sampled_from(list(Ordering)),
    null_keys=st.sampled_from(list(NullKeys)),
    stops=st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.booleans()), max_size=3),
)
def test_each_record_has_the_outputs_of_its_fate(
    records: list[Fated],
    exact: bool,
    batch_size: int,
    concurrency: int,
    ordering: Ordering,
    null_keys: NullKeys,
    stops: list[tuple[int, bool, bool]],
) -> None:
    """``stops``: after how many calls a consumer is stopped, whether it drains, and whether it reads records."""
    memory, group = Memory(), "g"
    topic, dead = memory.topic(PARTITIONS), memory.topic()
    target = memory.topic(max_message_bytes=MOST_BYTES)
    named = [(key, fate, partition, b"%d" % number) for number, (key, fate, partition) in enumerate(records)]
    for key, fate, partition, name in named:
        memory.write(Output(topic, fate.encode() + b" " + name, key, partition=partition))
    options = ConsumerOptions(
        topics=(topic,),
        group_id=group,
        batch_size=batch_size,
        max_concurrency=concurrency,
        ordering=ordering,
        null_keys=null_keys,
        delivery="exactly_once" if exact else "at_least_once",  # type: ignore[arg-type]
        dead_letter_topic=dead,
        commit_interval_ms=5,
        retry=RetryPolicy(max_attempts=1, delay_ms=0),
    )
    for calls, drains, only_records in stops:
        copies = Copies(target, only_records=only_records)
        with Running(memory, options, copies.handlers) as running:
            copies.wait(calls)
            running.stop(drain=drains)
        assert running.failure is None
    with Running(memory, options, Copies(target, only_records=False).handlers) as running:
        running.until(lambda _: is_done(memory, group, topic))
        [health] = [running.consumer.health()]
        assert all((each.buffered_bytes, each.incompletes, each.queued) == (0, 0, 0) for each in health.partitions)
    assert running.failure is None
    written = [(record.key, record.value or b"") for record in memory.read(target)]
    letters = [(record.value or b"").partition(b" ")[2] for record in memory.read(dead)]
    wanted = [(key, name) for key, fate, _, name in named if fate in ("one", "two")]
    wanted += [(key, name + b"+") for key, fate, _, name in named if fate == "two"]
    failed = [name for _, fate, _, name in named if fate in ("fails", "large", "breaks")]
    assert (set(written), set(letters)) == (set(wanted), set(failed))
    if exact:
        assert (Counter(written), Counter(letters)) == (Counter(wanted), Counter(failed))
    if exact and ordering is not Ordering.UNORDERED:
        _require_order(named, written, is_serial=null_keys is NullKeys.SERIAL)


def _require_order(
    named: Sequence[tuple[bytes | None, str, int, bytes]],
    written: Sequence[tuple[bytes | None, bytes]],
    *,
    is_serial: bool,
) -> None:
    """Require that the outputs of each key of a partition are in the order of its records."""
    places = {name: (partition, number) for number, (_, _, partition, name) in enumerate(named)}
    last: dict[tuple[bytes | None, int], int] = {}
    for key, value in written:
        partition, number = places[value.rstrip(b"+")]
        if key is not None or is_serial:
            assert last.get((key, partition), -1) <= number, (key, value)
            last[key, partition] = number
