"""Keeps the records of slices beside their models as Parquet, and reads them as untrusted input."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from wasmline.digests import digest_of
from wasmline.errors import InvalidArtifact, InvalidLayout
from wasmline.offset_ranges import OffsetRanges, require_ranges
from wasmline.printable import bounded_line
from wasmline.registry.oci_manifest import MAX_DOCUMENT_BYTES, blob_path, decoded, encoded, require_digest
from wasmline.registry.storage import open_storage
from wasmline.training.numbered_log import NumberedLog
from wasmline.training.prepare import (
    OFFSET,
    PARTITION,
    PROVENANCE,
    TIMESTAMP,
    VALUE,
    are_sorted,
    rows_within,
    sort_rows,
)
from wasmline.training.recorded_slice import RecordedSlice
from wasmline.training.stored_documents import stored_document
from wasmline.training.stored_rows import BATCH_ROWS, decode_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDER = "slice_rows"
_FILE = "slice_rows.json"

_UNNAMED = "rows.parquet"
"""The file of records of a slice that was kept before files had their digest for a name."""

MAX_RECORDS = 4_000_000
"""Maximum records of a slice that is kept."""

MAX_RECORD_BYTES = 256 * 1024 * 1024
"""Maximum bytes of their values and provenance together: they are in the memory of the driver at once."""

MAX_DECODED_BYTES = 2 * MAX_RECORD_BYTES
"""Maximum bytes of a slice's records in memory, with their coordinates, and of their file."""

SCHEMA = pa.schema(
    [
        pa.field(PARTITION, pa.int32(), nullable=False),
        pa.field(OFFSET, pa.int64(), nullable=False),
        pa.field(TIMESTAMP, pa.int64(), nullable=False),
        pa.field(VALUE, pa.binary()),
        pa.field(PROVENANCE, pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSlice:
    """The records of one slice: all committed ones at ``offsets``. ``digest`` is that of their file, and its name.

    Raises ValueError for offsets that are not ranges, and for a digest that is none.
    """

    model: str
    number: int
    topic: str
    topic_id: str
    offsets: OffsetRanges
    records: int
    digest: str
    spec_version: Literal[1] = 1

    def __post_init__(self) -> None:
        require_ranges(self.offsets)
        require_digest(self.digest)


class KeptRows:
    """The kept slices of the models of one registry, one folder each, by the number of the slice.

    Every method raises RegistryUnavailable if the storage fails, InvalidLayout for malformed content, and
    InvalidReference for an invalid name.
    """

    def __init__(self, url: str) -> None:
        self._storage = open_storage(url)
        self._log = NumberedLog(
            storage=self._storage,
            folder=FOLDER,
            file=_FILE,
            noun="kept slice",
            parse=_parse,
            max_bytes=MAX_DOCUMENT_BYTES,
        )

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of the kept slices of a model, in order."""
        return self._log.present(name)

    def slices(self, name: str) -> list[KeptSlice]:
        """Return the kept slices of a model. Raises UnsupportedSpecVersion if a later release wrote one."""
        return [self._log.read(name, number) for number in self.numbers(name)]

    def keep(self, records: DataFrame, recorded: RecordedSlice) -> str:
        """Keep the records of a slice, columns as ``read_slice`` gives them, and return "".

        A slice that is too large is not kept, and the text says so. One that was kept meanwhile stays as it is.
        """
        name, number = recorded.model, recorded.number
        if reason := _too_large(records):
            return reason
        data = io.BytesIO()
        count = _write(rows_within(sort_rows(records.toArrow()), recorded.offsets), data)
        kept = KeptSlice(
            model=name,
            number=number,
            topic=recorded.topic,
            topic_id=recorded.topic_id,
            offsets=recorded.offsets,
            records=count,
            digest=digest_of(data.getvalue()),
        )
        try:
            document = encoded(kept, KeptSlice)
        except ValueError as error:
            raise InvalidArtifact(f"the records of slice {number} of {name} cannot be kept: {error}") from error
        files = [(blob_path(kept.digest), data.getvalue()), (_FILE, document)]
        self._storage.create(self._log.path(name, number), files)
        return ""

    def read(self, kept: KeptSlice) -> pa.Table:
        """Return the records of a kept slice, in order, columns as ``read_slice`` gives them."""
        folder = self._log.path(kept.model, kept.number)
        path = f"{folder}/{blob_path(kept.digest)}"
        data = self._storage.read(path, MAX_DECODED_BYTES)
        if data is None:
            data = self._storage.read(f"{folder}/{_UNNAMED}", MAX_DECODED_BYTES)
        try:
            return _records(data or b"", kept)
        except ValueError as error:
            raise InvalidLayout(
                f"{path} in {self._storage.url} has not the records of slice {kept.number} of {kept.model}: "
                f"{bounded_line(error)}; restore it, or remove its folder",
                path=path,
            ) from error


def _parse(data: bytes, place: str) -> KeptSlice:
    return stored_document(KeptSlice, decoded(data, dict[str, Any]), place)


def _too_large(records: DataFrame) -> str:
    """Return why records are not kept, or ""; they are counted before they are collected."""
    from pyspark.sql import functions as f

    lengths = (f.coalesce(f.octet_length(name), f.lit(0)) for name in (VALUE, PROVENANCE))
    [(count, size)] = records.agg(f.count(f.lit(1)), f.coalesce(f.sum(sum(lengths, f.lit(0))), f.lit(0))).collect()
    if count <= MAX_RECORDS and size <= MAX_RECORD_BYTES:
        return ""
    return (
        f"{count:,} records of {size:,} bytes are more than the {MAX_RECORDS:,} records of {MAX_RECORD_BYTES:,} bytes "
        "that are kept of a slice: train more often, or let the topic keep them for longer"
    )


def _write(rows: pa.Table, sink: io.BytesIO) -> int:
    import pyarrow.parquet as pq

    pq.write_table(rows.select(SCHEMA.names).cast(SCHEMA), sink, compression="zstd", row_group_size=BATCH_ROWS)
    return int(rows.num_rows)


def _records(data: bytes, kept: KeptSlice) -> pa.Table:
    """Return the records in a file. Raises ValueError for another file than was kept, and for other records."""
    if len(data) > MAX_DECODED_BYTES:
        raise ValueError(f"it takes more than {MAX_DECODED_BYTES} bytes")
    if (digest := digest_of(data)) != kept.digest:
        raise ValueError(f"its digest is {digest}, not {kept.digest[:80]}")
    rows = decode_rows(data, kept.records, SCHEMA, max_rows=MAX_RECORDS, max_bytes=MAX_DECODED_BYTES)
    if not are_sorted(rows):
        raise ValueError("its records are not in the order of their coordinates")
    if rows_within(rows, kept.offsets).num_rows != rows.num_rows:
        raise ValueError("it has records at other offsets than the slice")
    return rows
