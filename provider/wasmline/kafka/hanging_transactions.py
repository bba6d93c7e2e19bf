"""Finds transactions whose markers a broker lost, and ends those whose decision is known.

A transaction hangs when its coordinator has ended it while partitions have it open: read_committed readers stop at its
first record, and reads of the group's offsets are rejected for ever. Missing markers are written with the decision that
was made, which is read from the coordinator's own log. ``docs/decisions/0008`` has the reasoning.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from wasmline.errors import BrokerUnavailable, HangingTransaction, KafkaError, WasmlineError
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.protocol_types import MalformedMessage
from wasmline.kafka.transaction_log import CONSUMER_OFFSETS, Decided, Decision, decisions, internal_partition
from wasmline.kafka.transaction_requests import OpenTransaction, ProducerIdentity, TransactionRequests
from wasmline.renames import renamed
from wasmline.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

REQUESTS_TIMEOUT_S = 15.0
"""Maximum seconds of the requests about one transactional id."""

MARKER_TIMEOUT_S = 5.0
"""Seconds in which the markers of a decided transaction are written."""

POLL_INTERVAL_S = 0.05

UNOWNED_DURATION_S = 5.0
"""Seconds for which a transaction must have no owner."""

ENDED_STATES = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
"""The states of a transactional id without a running transaction."""

ENDING_STATES = ("PrepareCommit", "PrepareAbort")
"""The states in which markers are about to be written, or to be lost."""

AMBIGUOUS = "its last two transactions there were decided differently, and both may have lost their markers"
UNKNOWN = "no decision about it is kept"
CONTRADICTED = "a later transaction that was decided otherwise may have decided about a part of it, too"


class Ended(NamedTuple):
    """A hanging transaction that was ended as its coordinator had decided."""

    transactional_id: str
    decision: Decision
    partitions: tuple[TopicPartition, ...]


def end_hanging(
    config: KafkaConfig,
    transactional_ids: Collection[str],
    group: str,
    topics: Collection[str] = (),
    *,
    timeout: float = REQUESTS_TIMEOUT_S,
) -> list[Ended]:
    """End the hanging transactions of these ids, which commit offsets of ``group``; return the ended ones.

    The caller owns the ids: if one hangs, its other producers are fenced. The check covers the group's offsets and
    ``topics``, and if any of these hang, all partitions in the coordinator's log. Raises HangingTransaction if the
    decision cannot be known, InvalidKafkaConfig where these requests do not support the connection's security,
    NotAuthorized, BrokerUnavailable.
    """
    ended: list[Ended] = []
    with TransactionRequests(config, timeout) as requests:
        places = set(requests.leaders(topics)) if topics else set()
        if (offsets := _offsets_partition(requests, group)) is not None:
            places.add(offsets)
        opened = {where: its for where, its in requests.open_transactions(places).items() if its}
        for name in sorted(transactional_ids) if opened else ():
            ended += _Examination(config, requests, name, group).end(opened)
    return ended


def require_no_hanging_transaction(config: KafkaConfig, group: str, *, timeout: float = REQUESTS_TIMEOUT_S) -> None:
    """Raise HangingTransaction where a transaction hangs on the partition that stores a group's offsets.

    For a group whose reads are rejected for long, while none of the ids that are known to write its offsets hangs.
    Whether the transaction holds offsets of this group cannot be known.
    """
    with TransactionRequests(config, timeout) as requests:
        partition = _offsets_partition(requests, group)
        if partition is not None:
            why = "it is not one that this job writes its progress under"
            _require_none_on(config, requests, partition, why)


def require_readable(config: KafkaConfig, partition: TopicPartition) -> None:
    """Raise HangingTransaction where a transaction hangs on a partition that could not be read to its end.

    Where that cannot be found out, a warning says so.
    """
    try:
        with TransactionRequests(config, REQUESTS_TIMEOUT_S) as requests:
            _require_none_on(config, requests, partition, "its transactional id belongs to another client")
    except HangingTransaction:
        raise
    except WasmlineError as error:
        text = "cannot check whether a transaction without its markers blocks %s: %s"
        logger.warning(text, partition, error)


def _require_none_on(config: KafkaConfig, requests: TransactionRequests, partition: TopicPartition, why: str) -> None:
    """Raise HangingTransaction where a partition has a transaction open that no coordinator has running."""
    if not (hanging := _over(requests, partition)):
        return
    time.sleep(UNOWNED_DURATION_S)  # a broker that has just become a coordinator lists nothing before it begins to load
    for each in _over(requests, partition):
        if each in hanging:
            raise _doubt(config, hanging[each], {partition: each}, why)


def decision_about(
    producer_id: int, partition: TopicPartition, history: Sequence[Decided], is_one: Callable[[], bool]
) -> tuple[Decision | None, str]:
    """Return the decision about the transaction that a producer has open on a partition, or why it is unknown.

    It is the producer's last one there: the marker of any later one would have closed it, too. If the one before was
    decided otherwise, and both have lost their markers, one marker would decide both; ``is_one`` excludes that. If a
    later transaction on others of its partitions was decided otherwise, its markers may have decided this one there:
    then it is partly committed.
    """
    its = [each for each in history if each.producer_id == producer_id]
    there = [place for place, each in enumerate(its) if partition in each.partitions]
    if not there:
        return None, UNKNOWN
    last = its[there[-1]]
    if any(its[place].decision is not last.decision for place in there[-2:]) and not is_one():
        return None, AMBIGUOUS
    later = (each for each in its[there[-1] + 1 :] if each.partitions & last.partitions)
    if any(each.decision is not last.decision for each in later):
        return None, CONTRADICTED
    return last.decision, ""


class _Examination:
    """One check of one transactional id."""

    def __init__(self, config: KafkaConfig, requests: TransactionRequests, name: str, group: str) -> None:
        self._config = config
        self._requests = requests
        self._name = name
        self._group = group

    def end(self, opened: Mapping[TopicPartition, Collection[OpenTransaction]]) -> list[Ended]:
        """End the id's hanging transactions: those just open on some partitions, and the same on other partitions.

        A transaction that is open both before and after the coordinator reports none hangs; one that another owner of
        the id has begun meanwhile is a different transaction.
        """
        state = self._requests.describe(self._name)
        deadline = time.monotonic() + MARKER_TIMEOUT_S
        while state is not None and state.state in ENDING_STATES and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL_S)
            state = self._requests.describe(self._name)
        if state is None or state.state not in ENDED_STATES:
            return []
        open_still = self._open(state.producer_id, opened)
        if not any(each in opened[where] for where, each in open_still.items()):
            return []
        history, why = self._history()
        looked_at = {*opened}.union(*(each.partitions for each in history if each.producer_id == state.producer_id))
        producer = self._requests.fence(self._name)
        # Transactions open now were open before every other producer of the id was fenced, and each has ended: the
        # fence waits until the coordinator has written, or lost, the markers of the last one.
        hanging = self._open(state.producer_id, looked_at)
        if not hanging:
            return []
        if producer.producer_id != state.producer_id:
            raise _doubt(self._config, self._name, hanging, "its producer id is not in use any more")
        found = {
            each: decision_about(state.producer_id, each, history, partial(self._is_one, each, hanging[each]))
            for each in hanging
        }
        ended = [
            self._write_markers(producer, decision, [each for each in hanging if found[each][0] is decision])
            for decision in Decision
            if any(known is decision for known, _ in found.values())
        ]
        if doubtful := {each: hanging[each] for each, (known, _) in found.items() if known is None}:
            raise _doubt(self._config, self._name, doubtful, why or found[next(iter(doubtful))][1])
        return ended

    def _history(self) -> tuple[list[Decided], str]:
        """Return the decisions that the log still has, or why they cannot be read."""
        try:
            return decisions(self._config, self._name), ""
        except BrokerUnavailable:
            raise
        except (KafkaError, MalformedMessage) as error:
            return [], f"the coordinator's log cannot be read: {error}"

    def _is_one(self, partition: TopicPartition, hanging: OpenTransaction) -> bool:
        """Return whether all that a producer has open was written in one leader epoch of its partition.

        Markers are lost while a partition has no leader, and the next leader begins another epoch, so two transactions,
        the first of which has lost its marker, are of two epochs.
        """
        return self._requests.is_of_one_epoch(partition, hanging.producer_id, hanging.start_offset)

    def _open(self, producer_id: int, places: Collection[TopicPartition]) -> dict[TopicPartition, OpenTransaction]:
        """Return the producer's open transactions, by partition."""
        found = self._requests.open_transactions(places)
        return {where: each for where, its in sorted(found.items()) for each in its if each.producer_id == producer_id}

    def _write_markers(
        self, producer: ProducerIdentity, decision: Decision, partitions: Sequence[TopicPartition]
    ) -> Ended:
        """Write the missing markers, by a transaction over these partitions that ends with the decision."""
        self._requests.end_empty(producer, self._group, partitions, commit=decision is Decision.COMMIT)
        deadline = time.monotonic() + MARKER_TIMEOUT_S
        while left := self._open(producer.producer_id, partitions):
            if time.monotonic() > deadline:
                raise _doubt(
                    self._config,
                    self._name,
                    left,
                    f"its markers ({decision}) were written again, and are missing again",
                )
            time.sleep(POLL_INTERVAL_S)
        text = "a broker had lost the markers of a transaction of %s on %s; they were written now, as decided: %s"
        logger.warning(text, self._name, _names(partitions), decision)
        return Ended(self._name, decision, tuple(partitions))


def _offsets_partition(requests: TransactionRequests, group: str) -> TopicPartition | None:
    """Return the partition that stores a group's offsets, unless brokers keep them elsewhere."""
    count = len(requests.leaders([CONSUMER_OFFSETS]))
    return TopicPartition(CONSUMER_OFFSETS, internal_partition(group, count)) if count else None


def _over(requests: TransactionRequests, partition: TopicPartition) -> dict[OpenTransaction, str]:
    """Return a partition's open transactions that no coordinator has running, with their transactional ids."""
    opened = requests.open_transactions([partition])[partition]
    owners = requests.owners([each.producer_id for each in opened])
    states = {name: requests.describe(name) for name in set(owners.values())}
    found = {}
    for each in opened:
        name = owners.get(each.producer_id, "")
        state = states.get(name)
        if state is None or state.state in ENDED_STATES:
            found[each] = name
    return found


def _doubt(
    config: KafkaConfig, name: str, hanging: Mapping[TopicPartition, OpenTransaction], why: str
) -> HangingTransaction:
    servers = config.bootstrap_servers
    producer_id = next(iter(hanging.values())).producer_id
    where = ", ".join(f"{partition}@{each.start_offset}" for partition, each in hanging.items())
    commands = "; ".join(
        f"kafka-transactions.sh --bootstrap-server {servers} abort --topic {topic} --partition {number} "
        f"--start-offset {each.start_offset}"
        for (topic, number), each in hanging.items()
    )
    text = (
        f"a broker lost markers of transactional id {name or '(forgotten)'}, producer {producer_id}: its coordinator "
    )
    text += f"has no transaction under way, and {where} have one open, which blocks its readers. Whether it was "
    text += (
        f"committed cannot be known: {why}. If no partition that it wrote to shows it as committed, abort it on all "
    )
    text += f"of them, and its records run again: {commands}. Then run the job again"
    return HangingTransaction(text, transactional_id=name, producer_id=producer_id, partitions=tuple(hanging))


def _names(partitions: Collection[TopicPartition]) -> str:
    topics: dict[str, list[str]] = defaultdict(list)
    for topic, partition in partitions:
        topics[topic].append(str(partition))
    return ", ".join(f"{topic} [{', '.join(numbers)}]" for topic, numbers in topics.items())


if not TYPE_CHECKING:  # or no missing name would be found
    __getattr__ = renamed(__name__)
