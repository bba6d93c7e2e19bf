"""Lost markers on the cluster in memory are what they are on a real broker, and jobs go on after them.

The first part does what ``tests/integration/kafka/test_hanging_transactions.py`` does on the logs of a broker.
"""

from __future__ import annotations

import pytest

from support.simulation.bound_code import bound  # noqa: F401 - every test of this module uses it
from support.simulation.history import CONFIG, GROUP, INPUT, JOB, MODES, OUTPUT, PLACES, History
from wasmline.consumer import Output
from wasmline.consumer.backends.memory import MemoryTransactionalProducer
from wasmline.errors import HangingTransaction
from wasmline.kafka.hanging_transactions import end_hanging
from wasmline.kafka.transaction_log import Decision
from wasmline.topic_partitions import CommittedOffset, TopicPartition

ID = f"wasmline.stream.{JOB}/{INPUT}/0"
SOURCE = TopicPartition(INPUT, 0)
TARGET = TopicPartition(OUTPUT, 0)
EXACT_MODES = [each for each in MODES if each[1] == "exactly_once"]


class Story:
    """Transactions of one id that write an output and the group's offset, one after the other."""

    def __init__(self) -> None:
        self.cluster = History(partitions=1).cluster
        self.producer = MemoryTransactionalProducer(self.cluster, ID)

    def transact(self, offset: int, where: str = "", *, commit: bool = True, sends: bool = True) -> None:
        """Commit or abort a transaction, and lose its markers where that is said."""
        self.producer.write(Output(OUTPUT, b"%d" % offset, partition=0))
        if sends:
            self.producer.send_offsets(GROUP, {SOURCE: CommittedOffset(offset)})
        end = self.producer.commit if commit else self.producer.abort
        if where:
            with self.cluster.losing_markers(ID, PLACES[where]):
                end()
        else:
            end()

    def restart(self) -> None:
        self.producer = MemoryTransactionalProducer(self.cluster, ID)

    def end(self) -> list[tuple[Decision, set[str]]]:
        ended = end_hanging(CONFIG, [ID], GROUP, [OUTPUT])
        return [(each.decision, {partition.topic for partition in each.partitions}) for each in ended]

    @property
    def committed(self) -> int | None:
        """What a stable read of the group sees; None: it waits."""
        group = self.cluster.group(GROUP)
        return None if group.is_held(SOURCE) else group.committed[SOURCE].offset

    @property
    def outputs(self) -> list[bytes | None]:
        """What a read_committed reader gets."""
        return [record.value for record in self.cluster.records(OUTPUT)]


@pytest.mark.parametrize(
    ("where", "topics"),
    [("everywhere", {OUTPUT, "__consumer_offsets"}), ("offsets", {"__consumer_offsets"}), ("outputs", {OUTPUT})],
)
def test_a_commit_whose_markers_are_lost_is_completed(where: str, topics: set[str]) -> None:
    story = Story()
    story.transact(1)
    story.transact(2, where)
    assert story.committed == (2 if where == "outputs" else None)
    assert story.outputs == ([b"1", b"2"] if where == "offsets" else [b"1"])
    assert story.end() == [(Decision.COMMIT, topics)]
    assert (story.committed, story.outputs) == (2, [b"1", b"2"])
    assert story.end() == []


@pytest.mark.parametrize(("where", "topics"), [("everywhere", {OUTPUT, "__consumer_offsets"}), ("outputs", {OUTPUT})])
def test_an_abort_whose_markers_are_lost_stays_one(where: str, topics: set[str]) -> None:
    story = Story()
    story.transact(1)
    story.transact(2, where, commit=False)
    assert story.end() == [(Decision.ABORT, topics)]
    assert (story.committed, story.outputs) == (1, [b"1"])


def test_a_commit_after_an_abort_is_completed() -> None:
    story = Story()
    story.transact(1)
    story.transact(2, commit=False)
    story.transact(3, "everywhere")
    assert story.end() == [(Decision.COMMIT, {OUTPUT, "__consumer_offsets"})]
    assert (story.committed, story.outputs) == (3, [b"1", b"3"])


def test_of_two_transactions_that_were_decided_differently_neither_is_guessed() -> None:
    story = Story()
    story.transact(1, "everywhere")
    story.restart()
    story.transact(2, "everywhere", commit=False)
    with pytest.raises(HangingTransaction, match="differently"):
        story.end()
    assert (story.committed, story.outputs) == (None, [])


def test_the_next_marker_decides_what_hangs_and_a_commit_in_pieces_is_not_completed() -> None:
    story = Story()
    story.transact(1, "everywhere")
    story.restart()
    story.transact(2, commit=False, sends=False)
    assert story.cluster.log(TARGET).stable == story.cluster.log(TARGET).end
    assert story.outputs == []
    with pytest.raises(HangingTransaction, match="may have decided about a part of it"):
        story.end()
    assert story.committed is None


def test_a_transaction_that_is_under_way_is_left_alone() -> None:
    story = Story()
    story.transact(1)
    story.producer.write(Output(OUTPUT, b"2", partition=0))
    story.producer.send_offsets(GROUP, {SOURCE: CommittedOffset(2)})
    assert story.end() == []
    story.producer.commit()
    assert (story.committed, story.outputs) == (2, [b"1", b"2"])


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("mode", EXACT_MODES, ids="-".join)
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_job_whose_first_transaction_loses_its_markers_goes_on_without_an_operator(
    partitions: int, mode: tuple[str, str], where: str
) -> None:
    """The first one holds the offsets of all partitions, under the id of one."""
    history = History(partitions=partitions)
    history.produce(0, 4)
    run = history.start(*mode)
    history.lose_markers(run, where, 2_000)
    if not run.is_over:
        history.finish(run)
    history.finish(history.start(*mode))
    assert history.cluster.leader_epoch == 1
    assert [each.name_of_end for each in history.runs] == ["succeeded"] * 2
    history.check()
    assert not history.missing()


@pytest.mark.parametrize("following", MODES, ids="-".join)
@pytest.mark.parametrize("mode", EXACT_MODES, ids="-".join)
def test_outputs_that_hang_at_the_end_of_a_run_are_ended_by_the_next_one_in_either_delivery(
    mode: tuple[str, str], following: tuple[str, str]
) -> None:
    history = History(partitions=1)
    history.produce(0, 4)
    run = history.start(*mode)
    history.lose_markers(run, "outputs", 2_000)
    if not run.is_over:
        history.finish(run)
    assert history.cluster.log(TARGET).stable == 0
    history.finish(history.start(*following))
    history.check()
    assert not history.missing()
    history.conclude()


def test_the_outputs_of_a_run_that_hang_are_ended_by_the_next_also_where_its_topic_is_new() -> None:
    history = History(partitions=1, reads_directly=True)
    history.produce(0, 5)
    history.lose_markers(history.start("microbatch", "exactly_once"), "outputs", 340)
    history.recreate_topic()
    history.produce(0, 2)
    history.finish(history.start("microbatch", "at_least_once"))
    history.conclude()
    assert [run.name_of_end for run in history.runs] == ["succeeded", "succeeded"]
