"""Copies records between a client and Arrow's columns by compiled code, without a Python object for each of them.

``compiled_columns.c`` is compiled when the package is built; where it is absent, or does not fit the client, records
travel through Python objects. It calls the librdkafka that confluent-kafka has loaded.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Producer

from wasmline.errors import InexactMetadata
from wasmline.kafka.error_mapping import ReportedError
from wasmline.kafka.librdkafka_ctypes import CLIENT, KNOWN_CLIENTS, Librdkafka, trial
from wasmline.record_batches import HEADERS, RECORD_SCHEMA, TIMED_OUTPUT_SCHEMA
from wasmline.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

LIBRARY = Path(__file__).with_name("libcompiled_columns.so.1")
"""The compiled ``compiled_columns.c``."""

SWITCH = "WASMLINE_COMPILED_COLUMNS"
"""The environment variable whose value 0 turns the compiled code off."""

TRIAL = "from wasmline.kafka.compiled_columns import CompiledColumns; CompiledColumns(is_trial=True)"
"""What a trial of an unknown release of the client runs."""

PLUGINS = "plugin.library.paths"
"""The setting of a producer whose deliveries the compiled code counts."""

MAX_PATH_BYTES = 4_096
"""Bytes of the longest path of the plugin."""

FORWARD_INTERVAL_S = 0.01
MAX_FORWARD_INTERVAL_S = 30.0
"""Seconds between two requests for the records of partitions of which none has come yet: doubled each time."""

MAX_FAILURES = 1_000
"""Failed outputs that are reported by one call."""


class _ArrowArray(ctypes.Structure):
    """``struct ArrowArray`` of Arrow's C data interface."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        *((name, ctypes.c_void_p) for name in ("buffers", "children", "dictionary", "release", "private_data")),
    ]


class _Message(ctypes.Structure):
    """``rd_kafka_message_t`` of rdkafka.h."""

    _fields_ = [
        ("error", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("value", ctypes.c_void_p),
        ("value_size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("opaque", ctypes.c_void_p),
    ]


class _Part(ctypes.Structure):
    """``struct part``."""

    _fields_ = [
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        *(
            (name, ctypes.c_int64)
            for name in ("next", "rows", "key_bytes", "value_bytes", "headers", "name_bytes", "header_bytes")
        ),
        ("columns", _ArrowArray),
    ]


class _Reading(ctypes.Structure):
    """``struct reading``."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("capacity", "messages_found", "errors_found", "parts_found")),
        ("messages", ctypes.c_void_p),
        ("sorted", ctypes.c_void_p),
        ("errors", ctypes.POINTER(ctypes.POINTER(_Message))),
        ("parts", ctypes.POINTER(_Part)),
        ("part_of", ctypes.c_void_p),
    ]


BOUND = (
    "consume_batch_queue",
    "message_timestamp",
    "message_headers",
    "header_get_all",
    "message_destroy",
    "headers_new",
    "header_add",
    "headers_destroy",
    "topic_new",
    "topic_destroy",
    "last_error",
    "producev",
    "conf_interceptor_add_on_new",
    "interceptor_add_on_acknowledgement",
)
"""``struct functions``: the functions of librdkafka that the compiled code calls, in its order."""

STRUCTURES: tuple[Any, ...] = (ctypes.c_void_p * len(BOUND), _Part, _Reading, _Message, _ArrowArray)
LAYOUT = tuple(ctypes.sizeof(each) for each in STRUCTURES)
"""Sizes of the structures that the compiled code declares, too."""

_reading, _writing = ctypes.POINTER(_Reading), ctypes.c_void_p
_numbers, _codes = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int)

FUNCTIONS = {
    "bind": (None, ctypes.c_void_p),
    "layout": (None, _numbers),
    "reading_new": (_reading, ctypes.c_int64),
    "reading_free": (None, _reading),
    "read": (ctypes.c_int, _reading, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64),
    "writing_new": (_writing, ctypes.POINTER(_ArrowArray), _reading),
    "writing_free": (None, _writing),
    "write": (ctypes.c_int64, _writing, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
    "unanswered": (ctypes.c_int64, _writing, _numbers),
    "failures": (ctypes.c_int64, _writing, _numbers, _codes, ctypes.c_int64),
}
"""Its functions, without their prefix: the type of the result, then those of the arguments."""


class PartitionColumns(NamedTuple):
    """Records of one partition: a batch of RECORD_SCHEMA, and the bytes of its keys, values and headers if known."""

    partition: TopicPartition
    batch: pa.RecordBatch
    size: int | None = None


def compiled_columns() -> CompiledColumns | None:
    """Return the compiled code; None where records travel through Python objects, and why is logged."""
    return None if os.environ.get(SWITCH) == "0" else _loaded()


@cache
def _loaded() -> CompiledColumns | None:
    if not LIBRARY.exists():
        return None
    try:
        return CompiledColumns()
    except Exception as error:
        logger.warning("records are copied without compiled code: %s", error)
        return None


class CompiledColumns:
    """The compiled code, bound to the loaded librdkafka.

    The constructor raises InexactMetadata unless client and library are as assumed here; that needs no broker. Raises
    ClientUntested where this cannot be known now. ``is_trial``: this process may crash.
    """

    def __init__(self, *, is_trial: bool = False) -> None:
        self.librdkafka = Librdkafka(is_trial=is_trial)
        if not is_trial and CLIENT not in KNOWN_CLIENTS and (problem := trial(CLIENT, TRIAL)):
            raise InexactMetadata(f"confluent-kafka {CLIENT} does not fit the compiled code: {problem}")
        library = ctypes.CDLL(str(LIBRARY))
        self._functions = {}
        for name, (result, *arguments) in FUNCTIONS.items():
            function = self._functions[name] = getattr(library, f"wasmline_{name}")
            function.restype, function.argtypes = result, arguments
        layout = (ctypes.c_int64 * len(LAYOUT))()
        self["layout"](layout)
        if tuple(layout) != LAYOUT:
            raise InexactMetadata(f"{LIBRARY.name} has structures of {tuple(layout)} bytes, not {LAYOUT}")
        self["bind"](ctypes.byref((ctypes.c_void_p * len(BOUND))(*map(self.librdkafka.address, BOUND))))
        self._try()

    def __getitem__(self, name: str) -> Any:
        return self._functions[name]

    @property
    def producer_settings(self) -> dict[str, str]:
        """The settings of a producer that OutputWriter writes to."""
        return {PLUGINS: str(LIBRARY)}

    def _try(self) -> None:
        """Write records to a client that connects to nothing, and compare the messages that it drops with them."""
        client = Producer({"client.id": f"trial-{uuid.uuid4()}", "log_level": "0", **self.producer_settings})
        headers = [("name", b"value"), ("name", None), ("", b"")]
        for key, value, pairs in ((b"key", b"value", headers), (None, None, None), (b"", b"", None)):
            columns = ([0], [0], [key], [value], [pairs], [1_234])
            arrays = [pa.array(each, field.type) for each, field in zip(columns, TIMED_OUTPUT_SCHEMA, strict=True)]
            written = pa.RecordBatch.from_arrays(arrays, schema=TIMED_OUTPUT_SCHEMA)
            reading = self["reading_new"](1)
            try:
                writer = CompiledWriter(self, written, ["trial"], capture=reading)
                is_passed = writer.write(client)
                client.purge()
                client.poll(0)
                unanswered, failed = writer.answers()
                seen = [each.batch for each in self.parts(reading)]
            finally:
                self["reading_free"](reading)
            codes = [error.code() for _, error in failed]
            if not is_passed or unanswered or codes != [KafkaError._PURGE_QUEUE]:
                raise InexactMetadata(f"confluent-kafka {CLIENT} answers {codes} to a record that it drops")
            if [_without_place(each) for each in seen] != [_without_place(written)]:
                raise InexactMetadata(f"confluent-kafka {CLIENT} has other messages: {seen} for {written}")

    def require_plugin(self, handle: int) -> None:
        """Raise InexactMetadata for a client without ``producer_settings``."""
        value, size = ctypes.create_string_buffer(MAX_PATH_BYTES), ctypes.c_size_t(MAX_PATH_BYTES)
        functions = self.librdkafka
        functions["conf_get"](functions["conf"](handle), PLUGINS.encode(), value, ctypes.byref(size))
        if value.value.decode() != self.producer_settings[PLUGINS]:
            raise InexactMetadata(f"outputs in columns are written to a client without the plugin {LIBRARY.name}")

    def parts(self, reading: ctypes._Pointer[_Reading]) -> Iterator[PartitionColumns]:
        """Take over the records that were read, as columns of each partition."""
        for number in range(reading.contents.parts_found):
            part = reading.contents.parts[number]
            topic = self.librdkafka["topic_name"](part.topic).decode()
            batch = pa.RecordBatch._import_from_c(ctypes.addressof(part.columns), RECORD_SCHEMA)
            size = part.key_bytes + part.value_bytes + part.name_bytes + part.header_bytes
            partition = TopicPartition(topic, part.partition)
            yield PartitionColumns(partition, _with_valid_names(partition, batch) if part.headers else batch, size)


class ColumnReader:
    """Reads the records of some partitions of a consumer, which goes on serving its group and its events."""

    def __init__(self, library: CompiledColumns, consumer: Consumer, capacity: int) -> None:
        self._library = library
        self._consumer = consumer
        self._reading = library["reading_new"](capacity)
        if not self._reading:
            raise MemoryError(f"no memory to read {capacity} records")
        self._queue = library.librdkafka["queue_new"](library.librdkafka.handle(consumer))
        self._unseen: set[TopicPartition] = set()
        """Partitions that were added, and of which nothing has come since."""
        self._next_forward, self._forward_interval = math.inf, FORWARD_INTERVAL_S

    def add(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions, which are about to be assigned: the consumer itself returns none of their records."""
        self._unseen.update(partitions)
        self._forward_interval = FORWARD_INTERVAL_S
        self._forward()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Await nothing more of these partitions, whose assignment ends."""
        self._unseen.difference_update(partitions)

    def _forward(self) -> None:
        """Have the records of the partitions that were not seen yet come to the queue of this reader.

        It is done again and again: the end of a partition's earlier assignment, which the client carries out in a
        thread of its own, undoes it. What has come meanwhile is forwarded, too.
        """
        functions = self._library.librdkafka
        with functions.lent(self._consumer) as handle:
            for topic, partition in self._unseen:
                if queue := functions["queue_get_partition"](handle, topic.encode(), partition):
                    functions["queue_forward"](queue, self._queue)
                    functions["queue_destroy"](queue)
        self._next_forward = time.monotonic() + self._forward_interval
        self._forward_interval = min(2 * self._forward_interval, MAX_FORWARD_INTERVAL_S)

    def read(self, limit: int, timeout: float) -> tuple[list[PartitionColumns], list[ReportedError]]:
        """Return up to ``limit`` records, by partition, and the errors reported in place of records.

        Waits up to ``timeout`` seconds for the first.
        """
        if self._unseen:
            if time.monotonic() >= self._next_forward:
                self._forward()
            timeout = min(timeout, max(0.0, self._next_forward - time.monotonic()))
        if self._library["read"](self._reading, self._queue, int(timeout * 1_000), limit):
            raise MemoryError(f"no memory for {self._reading.contents.messages_found} records")
        found = list(self._library.parts(self._reading))
        errors = [self._error(self._reading.contents.errors[i]) for i in range(self._reading.contents.errors_found)]
        if self._unseen:
            self._unseen.difference_update(part.partition for part in found)
        return found, errors

    def _error(self, message: ctypes._Pointer[_Message]) -> ReportedError:
        functions, reported = self._library.librdkafka, message.contents
        topic = functions["topic_name"](reported.topic).decode() if reported.topic else ""
        text = functions["message_errstr"](message).decode(errors="replace")
        error = KafkaError(reported.error, text)
        return ReportedError(TopicPartition(topic, reported.partition), reported.offset, error)

    def close(self) -> None:
        """Drop what was not read. Called once, before the consumer is closed."""
        self._library["reading_free"](self._reading)
        self._library.librdkafka["queue_destroy"](self._queue)


class CompiledWriter:
    """Passes the outputs of one call to a client, in their order and as its queue has capacity."""

    def __init__(
        self,
        library: CompiledColumns,
        outputs: pa.RecordBatch,
        topics: Sequence[str],
        *,
        capture: ctypes._Pointer[_Reading] | None = None,
    ) -> None:
        """outputs: a batch of TIMED_OUTPUT_SCHEMA, whose column ``output`` is an index into ``topics``.

        capture: where the first message is copied to when its delivery is known.
        """
        if not outputs.schema.equals(TIMED_OUTPUT_SCHEMA):
            raise TypeError(f"outputs have the columns of TIMED_OUTPUT_SCHEMA, not {outputs.schema}")
        self._library = library
        self._names = (ctypes.c_char_p * len(topics))(*(topic.encode() for topic in topics))
        self._topics = (ctypes.c_void_p * len(topics))()
        exported = _ArrowArray()
        outputs._export_to_c(ctypes.addressof(exported))
        self._writing = library["writing_new"](ctypes.byref(exported), capture)
        if not self._writing:
            pa.RecordBatch._import_from_c(ctypes.addressof(exported), TIMED_OUTPUT_SCHEMA)  # releases it
            raise MemoryError(f"no memory to write {len(outputs)} records")

    def write(self, client: Producer) -> bool:
        """Pass outputs to a client with ``producer_settings``; return whether it has all of them now.

        Raises InexactMetadata for any other client: it would take what is the compiled code's for its own.
        """
        handle = self._library.librdkafka.handle(client)
        self._library.require_plugin(handle)
        return not self._library["write"](self._writing, handle, self._names, self._topics, len(self._topics))

    def answers(self) -> tuple[int, list[tuple[int, KafkaError]]]:
        """Return the number of outputs whose delivery is not known, and the failed ones since the last call."""
        failures = ctypes.c_int64()
        unanswered = self._library["unanswered"](self._writing, ctypes.byref(failures))
        failed: list[tuple[int, KafkaError]] = []
        while failures.value > len(failed):
            rows, codes = (ctypes.c_int64 * MAX_FAILURES)(), (ctypes.c_int * MAX_FAILURES)()
            found = self._library["failures"](self._writing, rows, codes, MAX_FAILURES)
            failed += [(rows[number], KafkaError(codes[number])) for number in range(found)]
            if not found:
                break
        return unanswered, failed

    def __del__(self) -> None:
        if writing := getattr(self, "_writing", None):
            self._library["writing_free"](writing)


def _without_place(batch: pa.RecordBatch) -> list[list[object]]:
    """Return the columns that records and outputs have in common."""
    return [batch.column(name).to_pylist() for name in ("key", "value", "headers")] + [
        batch.column("timestamp").cast(pa.int64()).to_pylist()
    ]


def _with_valid_names(partition: TopicPartition, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records whose header names are UTF-8: ``\ufffd`` stands for what is not."""
    headers = batch.column("headers")
    pairs = headers.values
    names = pairs.field("key")
    try:
        names.validate(full=True)
        return batch
    except pa.ArrowInvalid:
        pass
    logger.warning("records of %s-%d have headers whose names are not UTF-8", *partition)
    decoded = [name.decode(errors="replace") for name in names.view(pa.binary()).to_pylist()]
    pairs = pa.StructArray.from_arrays(
        [pa.array(decoded, pa.string()), pairs.field("value")], fields=list(HEADERS.value_type)
    )
    lists = pa.ListArray.from_arrays(headers.offsets, pairs, type=HEADERS, mask=headers.is_null())
    return batch.set_column(RECORD_SCHEMA.get_field_index("headers"), RECORD_SCHEMA.field("headers"), lists)
