"""One transaction per input partition, or per virtual shard of them, with librdkafka.

The transactional id is a function of the partition, so a new owner fences the earlier one, and ends its open
transaction, before it reads the progress. The protocol: docs/protocols/exactly_once.md.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from wasmline.background_call import call_each
from wasmline.consumer.backends.kafka.exactly_once_probe import require_exactly_once
from wasmline.consumer.backends.kafka.file_descriptor_check import require_file_descriptors
from wasmline.consumer.backends.kafka.group_source import (
    METADATA_TOO_LARGE_CODES,
    GroupSource,
    metadata_too_large_error,
)
from wasmline.consumer.backends.kafka.lazy_offset_store import LazyOffsetStore
from wasmline.consumer.backends.kafka.producer_batch_limiter import ProducerBatchLimiter
from wasmline.consumer.backends.kafka.sink import delivery_error, produce
from wasmline.consumer.backends.kafka.stable_fetch_recovery import end_on_outputs, stable_read
from wasmline.consumer.backends.kafka.transaction_settings import PRODUCER_SETTINGS
from wasmline.consumer.records import Output
from wasmline.consumer.runtime.failure_log import forget_frames
from wasmline.consumer.timings import DEFAULT_TIMINGS, Timings
from wasmline.errors import (
    BrokerUnavailable,
    CommitFailed,
    HangingTransactionEnded,
    OutputRefused,
    ProducerFenced,
    WasmlineError,
)
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.error_mapping import DENIED_CODES, translate_errors
from wasmline.kafka.reconnecting_clients import ReconnectingProducer
from wasmline.kafka.transactional_producer import (
    FENCED_CODES,
    SendingOffsets,
    init_transactions,
    retry,
    transactional_producer,
)
from wasmline.topic_partitions import CommittedOffset, TopicPartition, partition_names
from wasmline.transactional_ids import transactional_id

if TYPE_CHECKING:
    from wasmline.consumer.columns import OutputColumns
    from wasmline.kafka.compiled_columns import CompiledColumns
    from wasmline.kafka.message_columns import OutputWriter

T = TypeVar("T")

PartitionResult = tuple[Sequence["Output | OutputColumns"], CommittedOffset]
CommitContents = Mapping[TopicPartition, PartitionResult]
"""The contents of a transaction, by partition."""

TRANSACTION_DEADLINE_S = 15.0
"""Maximum seconds of a transaction. After that its client is abandoned: whatever blocks it, the next client of its id
ends the transaction."""

OFFSETS_TIMEOUT_S = 3.0
"""Maximum seconds to wait for the answer to sent offsets. If the cluster is merely slow, the cost is one client."""

DELIVERY_POLL_INTERVAL_S = 0.1
"""Seconds between two checks for rejected outputs, while others are awaited."""

BISECTION_BATCHES = 8
"""Batches into which outputs that were rejected together are divided, again and again, until the cause is found."""

output_topics: dict[str, set[str]] = defaultdict(set)
"""The topics that this process writes to in transactions, by the prefix of their ids."""


class OpenTransactionalId:
    """An open transactional id: its producer, and the committed progress of each partition that shares it.

    Opening a partition creates a new one of its id, so that an abandoned commit uses the old one, whose producer is
    fenced.
    """

    __slots__ = ("client", "is_over", "progress", "suspects")

    def __init__(self, client: ReconnectingProducer, progress: dict[TopicPartition, CommittedOffset | None]) -> None:
        self.client: ReconnectingProducer | None = client
        """None after ``abandon_producer``."""
        self.progress = progress
        self.is_over = False
        """Whether a partition has to be reopened before the others continue."""
        self.suspects: Sequence[Output | OutputColumns] = ()
        """A batch that was rejected because of at least one of its outputs. The next transaction divides it."""

    def abandon_producer(self) -> None:
        """Abandon the producer: the ``init_transactions`` of the next one aborts its open transaction."""
        if self.client is not None:
            self.client.discard()
            self.client = None


class KafkaTransactions:
    """A producer for each transactional id. See Transactions for its contract."""

    def __init__(
        self,
        config: KafkaConfig,
        prefix: str,
        source: GroupSource,
        offset_store: LazyOffsetStore,
        *,
        is_safe: bool = False,
        timings: Timings = DEFAULT_TIMINGS,
    ) -> None:
        """``is_safe``: ``require_exactly_once`` has passed before."""
        self._timings = timings
        self._config = config
        self._prefix = prefix
        self._source = source
        self._offset_store = offset_store
        self._open_ids: dict[str, OpenTransactionalId] = {}
        """By transactional id."""
        self._disconnects: dict[str, list[KafkaError]] = {}
        """By transactional id: errors that its newest producer reported since it was ready."""
        self.compiled: CompiledColumns | None = None
        """Writes outputs in columns; None: they become messages."""
        self._is_safe = is_safe
        self._testing = threading.Lock()
        self._batches = ProducerBatchLimiter(config)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        with self._testing:
            if not self._is_safe:
                require_exactly_once(self._config, self._prefix, next(iter(partitions)), self._offset_store)
                self._is_safe = True
        self.close(partitions)
        names = list(dict.fromkeys(map(self._id, partitions)))
        require_file_descriptors(len(names))
        shared = {
            partition: at
            for name in names
            if name in self._open_ids
            for partition, at in list(self._open_ids[name].progress.items())
        }
        deadline = time.monotonic() + self._timings.transactions_open_timeout_s
        with translate_errors(self._config.bootstrap_servers):
            clients = call_each(names, lambda name: self._fence(name, deadline))
            self._require_owner()
            found = self._read([*partitions, *shared], shared, deadline)
        open_ids = {name: OpenTransactionalId(client, {}) for name, client in clients.items()}
        for partition in [*partitions, *shared]:
            open_ids[self._id(partition)].progress[partition] = found.get(partition)
        self._open_ids |= open_ids

    def begin(self, work: CommitContents) -> Callable[[], Mapping[TopicPartition, WasmlineError]]:
        # In another thread the client does not answer this while the control loop is in a callback of the assignment.
        with translate_errors(self._config.bootstrap_servers):
            member = self._source.consumer.consumer_group_metadata()
        transactions: dict[str, dict[TopicPartition, PartitionResult]] = defaultdict(dict)
        for partition, each in work.items():
            transactions[self._id(partition)][partition] = each
        open_ids = {name: self._open_ids.get(name) for name in transactions}

        def run_transactions() -> Mapping[TopicPartition, WasmlineError]:
            answers = call_each(
                transactions, lambda name: self._commit(name, open_ids[name], transactions[name], member)
            )
            return {
                partition: failure
                for name, error in answers.items()
                if error is not None
                for partition, failure in _errors_by_partition(error, transactions[name]).items()
            }

        return run_transactions

    def close(self, partitions: Collection[TopicPartition] | None = None) -> None:
        for name, open_id in list(self._open_ids.items()):
            gone = [partition for partition in list(open_id.progress) if partitions is None or partition in partitions]
            if gone:
                open_id.is_over = True  # before the progress goes: a late commit checks both
                open_id.abandon_producer()
            for partition in gone:
                open_id.progress.pop(partition, None)
            if not open_id.progress:
                self._open_ids.pop(name, None)

    def _id(self, partition: TopicPartition) -> str:
        """Return the transactional id of a partition; those that share one have one transaction."""
        return transactional_id(self._prefix, partition)

    def _fence(self, name: str, deadline: float) -> ReconnectingProducer:
        reports: list[KafkaError] = []
        self._disconnects[name] = reports
        settings = {**PRODUCER_SETTINGS, **(self.compiled.producer_settings if self.compiled else {})}
        client = transactional_producer(self._config, name, {**settings, "error_cb": reports.append})
        client.list_topics(timeout=max(0.0, deadline - time.monotonic()))
        # Before the fence, too: it aborts the transaction of an abandoned producer, and what hangs with that.
        end_on_outputs(self._config, self._source.group, [name], output_topics[self._prefix])
        init_transactions(client, deadline)
        reports.clear()
        return client

    def _require_owner(self) -> None:
        """Raise ProducerFenced if the newest producers, which this has just fenced, were another owner's.

        A group tells its members who owns a partition, and rejects their offsets otherwise.
        """

    def _read(
        self,
        partitions: Collection[TopicPartition],
        left: Mapping[TopicPartition, CommittedOffset | None],
        deadline: float,
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed progress, once no other process can change it.

        Raises ProducerFenced if it differs from ``left``: there was another owner meanwhile, and continuing would
        process its records again.
        """
        offset_store = self._offset_store.on(next(iter(partitions)))
        ids = {self._id(partition) for partition in partitions}
        read = partial(offset_store.committed, self._source.consumer, partitions)
        found = stable_read(self._config, self._source.group, ids, read, deadline, output_topics[self._prefix])
        self._require_unmoved(left, found)
        return found

    def _require_unmoved(
        self, left: Mapping[TopicPartition, CommittedOffset | None], found: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        if moved := [partition for partition, at in left.items() if found.get(partition) != at]:
            raise _fenced(moved)

    def _commit(
        self, name: str, open_id: OpenTransactionalId | None, work: CommitContents, member: Any
    ) -> WasmlineError | None:
        """Run one transaction, and return its error.

        A client that is no longer usable is abandoned, and the next transaction has another.
        """
        deadline = time.monotonic() + TRANSACTION_DEADLINE_S
        if open_id is None or open_id.is_over:
            return CommitFailed(
                f"{partition_names(work)} cannot be written before all that shares its producer is reopened"
            )
        try:
            with translate_errors(self._config.bootstrap_servers):
                self._end_hanging_after_disconnect(name, open_id)
                client = open_id.client or self._new_client(name, open_id, deadline)
        except WasmlineError as failure:
            # Nothing was begun, so the same transaction can be retried.
            return (
                CommitFailed(f"{partition_names(work)} has no producer yet: {failure}")
                if failure.retryable
                else failure
            )
        error, is_usable = self._run_transaction(client, open_id, work, member, deadline)
        if error is None:
            open_id.suspects = ()
            open_id.progress |= {partition: progress for partition, (_, progress) in work.items()}
        elif not isinstance(error, CommitFailed | OutputRefused):
            open_id.is_over = True
            for partition in work:  # it may have been committed or not
                open_id.progress.pop(partition, None)
            # The client says nothing of a topic that was deleted: it waits for longer than a transaction takes.
            self._batches.forget({topic for outputs, _ in work.values() for topic in _topics(outputs)})
        if not is_usable:
            open_id.abandon_producer()
        return error

    def _end_hanging_after_disconnect(self, name: str, open_id: OpenTransactionalId) -> None:
        """End an id's hanging transaction after a lost connection: the next transaction would decide it.

        Producers are fenced only if a transaction hangs: this process may no longer be the owner.
        """
        if open_id.client is None:
            return
        open_id.client.poll(0)
        if self._disconnects[name]:
            try:
                end_on_outputs(self._config, self._source.group, [name], output_topics[self._prefix])
            except HangingTransactionEnded:
                open_id.abandon_producer()
                raise
            self._disconnects[name].clear()

    def _new_client(self, name: str, open_id: OpenTransactionalId, deadline: float) -> ReconnectingProducer:
        """Return another producer for an id whose own was abandoned."""
        client = self._fence(name, deadline)
        self._require_owner()
        if left := dict(open_id.progress):
            self._read(left, left, deadline)
        if open_id.is_over:  # closed meanwhile, perhaps reopened: that producer is fenced, so nothing is written twice
            raise CommitFailed("a partition of this commit was closed or reopened meanwhile; the commit was dropped")
        open_id.client = client
        return client

    def _run_transaction(
        self, client: Producer, open_id: OpenTransactionalId, work: CommitContents, member: Any, deadline: float
    ) -> tuple[WasmlineError | None, bool]:
        """Run one transaction; return its error, and whether the client can be used for another one."""
        outputs = [output for outputs, _ in work.values() for output in outputs]
        deliveries = _DeliveryReports(outputs, self._delivery_failure)
        offsets = {partition: progress for partition, (_, progress) in work.items()}
        try:
            with translate_errors(self._config.bootstrap_servers, dict.fromkeys(FENCED_CODES, _fenced(work))):
                client.begin_transaction()
                try:
                    # The offsets are sent while the outputs are written: the end of the transaction joins them.
                    with self._sending_offsets(client, offsets, member, deadline):
                        self._write_outputs(client, outputs, open_id.suspects, deliveries, deadline)
                    retry(client.commit_transaction, deadline)
                except (KafkaException, WasmlineError) as error:
                    late = time.monotonic() > deadline
                    is_fatal = isinstance(error, KafkaException) and error.args[0].fatal()
                    if late or is_fatal or isinstance(error, CommitFailed):
                        raise
                    # They hold it and all outputs, and if the abort fails, confluent-kafka's error keeps it for ever.
                    forget_frames(error)
                    # Rejected while a commit is under way, so an aborted transaction was not committed.
                    retry(client.abort_transaction, deadline)
                    client.poll(0)  # the results of the outputs may be reported only now
                    undelivered = deliveries.failures()
                    if undelivered and not undelivered[0].retryable:
                        return self._rejection(open_id, outputs, undelivered), False
                    if isinstance(error, WasmlineError) and not error.retryable:
                        return error, isinstance(error, OutputRefused)
                    if isinstance(error, KafkaException) and error.args[0].code() in DENIED_CODES:
                        raise
                    text = f"the transaction of {partition_names(work)} was aborted: {error}"
                    # The client counts records that were not sent, and would fail the next transaction over the gap.
                    return CommitFailed(text), not undelivered
        except WasmlineError as error:
            return error, False
        return None, True

    @contextmanager
    def _sending_offsets(
        self, client: Producer, offsets: Mapping[TopicPartition, CommittedOffset], member: Any, deadline: float
    ) -> Iterator[None]:
        """Make the progress part of the transaction meanwhile, and wait for that at the end, also of a failure.

        CommitFailed leaves a client that must not be used any more.
        """
        offset_store = self._offset_store.on(next(iter(offsets)))
        timeout = min(OFFSETS_TIMEOUT_S, deadline - time.monotonic())
        sending = SendingOffsets(offset_store, client, member, offsets, timeout)
        try:
            yield
        finally:
            try:
                sending.wait()
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError._TIMED_OUT:
                    text = f"the offsets of {partition_names(offsets)} were not answered in time"
                    raise CommitFailed(text) from error
                if code in METADATA_TOO_LARGE_CODES:
                    raise metadata_too_large_error(offsets) from error
                raise

    def _rejection(
        self,
        open_id: OpenTransactionalId,
        outputs: Sequence[Output | OutputColumns],
        undelivered: Sequence[WasmlineError],
    ) -> WasmlineError:
        """Return the error of an aborted transaction. Of many outputs rejected together, the cause is still to find."""
        refused = [error.place for error in undelivered if isinstance(error, OutputRefused)]
        for error in undelivered:
            if isinstance(error, OutputRefused) and not isinstance(outputs[error.place], Output):
                return error  # columns are divided first
        if len(refused) < 2:
            return undelivered[0]
        open_id.suspects = [outputs[place] for place in refused]
        return CommitFailed(f"one of {len(refused)} outputs is rejected; smaller batches find it: {undelivered[0]}")

    def _write_outputs(
        self,
        client: Producer,
        outputs: Sequence[Output | OutputColumns],
        suspects: Sequence[Output | OutputColumns],
        deliveries: _DeliveryReports,
        deadline: float,
    ) -> None:
        """Write the outputs of a transaction; a failed output is raised, or is one of the ``deliveries``.

        After a rejection, the client sends nothing more of the transaction, and nothing more is awaited.
        """
        waiting: dict[str, int] = {}
        size = math.ceil(len(suspects) / BISECTION_BATCHES)
        groups = {id(output): number // size for number, output in enumerate(suspects)}
        last: int | None = None
        output_topics[self._prefix].update(_topics(outputs))

        for place, each in enumerate(outputs):
            try:
                if not isinstance(each, Output) and self._batches.limits_none(each):
                    self._write_columns(client, each, place, deliveries, deadline)
                else:
                    for number, output in enumerate([each] if isinstance(each, Output) else each.outputs()):
                        if (group := groups.get(id(output))) != last:
                            _flush(client, deliveries, deadline)
                            last = group
                        answer = partial(deliveries.take, place, number)
                        self._write(client, output, answer, waiting, deliveries, deadline)
            except OutputRefused as error:
                error.place = place
                raise
            if deliveries.failures():
                break
        if waiting:
            _flush(client, deliveries, deadline)
        deliveries.require_no_failure()

    def _delivery_failure(self, output: Output, error: KafkaError) -> WasmlineError:
        self._batches.note_rejection(output, error)
        return self._batches.missing_partition(output, error) or delivery_error(self._config, output.topic, error)

    def _write(
        self,
        client: Producer,
        output: Output,
        delivered: Callable[[KafkaError | None, Message], None],
        waiting: dict[str, int],
        deliveries: _DeliveryReports,
        deadline: float,
    ) -> None:
        """Write one output, unless one is rejected before the client has capacity."""
        while not deliveries.failures():
            if self._batches.flush_if_full(client, output, waiting, DELIVERY_POLL_INTERVAL_S):
                self._produce(client, output, delivered)
                return
            if time.monotonic() > deadline:
                raise self._late_error([output.topic])

    def _write_columns(
        self,
        client: Producer,
        outputs: OutputColumns,
        place: int,
        deliveries: _DeliveryReports,
        deadline: float,
    ) -> None:
        """Write outputs in columns; a failed one is one of the ``deliveries``."""
        from wasmline.kafka.message_columns import output_writer

        writer = output_writer(outputs.batch, outputs.topics, self.compiled)
        deliveries.add(place, writer)
        while not writer.write(client) and not deliveries.failures():
            if time.monotonic() > deadline:
                raise self._late_error(outputs.topics_written)
            client.poll(DELIVERY_POLL_INTERVAL_S)

    def _late_error(self, topics: Sequence[str]) -> BrokerUnavailable:
        servers = self._config.bootstrap_servers
        text = f"{', '.join(topics)} on {servers} did not accept its records in time"
        return BrokerUnavailable(text, bootstrap_servers=servers)

    def _produce(
        self, client: Producer, output: Output, delivered: Callable[[KafkaError | None, Message], None]
    ) -> None:
        try:
            produce(client, output, delivered)
        except KafkaException as error:
            if missing := self._batches.missing_partition(output, error.args[0]):
                raise missing from error
            raise


class _DeliveryReports:
    """The failures of the outputs of one transaction, as far as they are known."""

    def __init__(
        self,
        outputs: Sequence[Output | OutputColumns],
        failure: Callable[[Output, KafkaError], WasmlineError],
    ) -> None:
        self._outputs = outputs
        self._failure = failure
        self._failures: list[WasmlineError] = []
        self._unwritable: KafkaError | None = None
        """Why the client took an output for none of its transaction, which has failed for another reason."""
        self._writers: list[tuple[int, OutputWriter]] = []

    def add(self, place: int, writer: OutputWriter) -> None:
        """Ask this writer of the columns at a place, too."""
        self._writers.append((place, writer))

    def take(self, place: int, number: int, error: KafkaError | None, _: Message | None = None) -> None:
        """Take the answer to an output, or to one of columns: a callback of the client."""
        if error is None or error.code() == KafkaError._PURGE_QUEUE:
            return
        if error.code() == KafkaError._STATE:
            self._unwritable = error
        else:
            output = _output(self._outputs[place], number)
            self._failures.append(_with_place(self._failure(output, error), place))

    def failures(self) -> Sequence[WasmlineError]:
        """Return the failures of outputs, but for those that failed with their transaction."""
        for place, writer in self._writers:
            for number, error in writer.answers()[1]:
                self.take(place, number, error)
        return self._failures

    def require_no_failure(self) -> None:
        """Raise the first failure: what the client has refused fails no commit."""
        if self.failures():
            raise self._failures[0]
        if self._unwritable is not None:
            raise KafkaException(self._unwritable)


def _flush(client: Producer, deliveries: _DeliveryReports, deadline: float) -> None:
    """Wait for all answers, or for the first rejection."""
    while client.flush(DELIVERY_POLL_INTERVAL_S) and not deliveries.failures() and time.monotonic() < deadline:
        pass


def _errors_by_partition(error: WasmlineError, work: CommitContents) -> dict[TopicPartition, WasmlineError]:
    """Return the error of each partition of a failed transaction: a rejected output belongs to one partition."""
    if not isinstance(error, OutputRefused):
        return dict.fromkeys(work, error)
    failures: dict[TopicPartition, WasmlineError] = {}
    place = error.place
    for partition, (outputs, _) in work.items():
        if 0 <= place < len(outputs):
            failures[partition] = _with_place(error, place)
        else:
            failures[partition] = CommitFailed(f"the transaction of {partition_names(work)} was aborted: {error}")
        place -= len(outputs)
    return failures


def _topics(outputs: Iterable[Output | OutputColumns]) -> set[str]:
    """Return the topics of some outputs."""
    found: set[str] = set()
    for each in outputs:
        found.update([each.topic] if isinstance(each, Output) else each.topics_written)
    return found


def _output(output: Output | OutputColumns, number: int) -> Output:
    """Return an output, or the one at a place of columns."""
    return output if isinstance(output, Output) else output.output(number)


def _fenced(partitions: Iterable[TopicPartition]) -> ProducerFenced:
    return ProducerFenced(f"another producer has taken over {partition_names(partitions)}")


def _with_place(error: WasmlineError, place: int) -> WasmlineError:
    if isinstance(error, OutputRefused):
        error.place = place
    return error
