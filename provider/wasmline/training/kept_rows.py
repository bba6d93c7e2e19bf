"""Keeps the records of slices beside their models as Parquet, and reads them as untrusted input."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from wasmline.digests import digest_of
from wasmline.errors import InvalidArtifact, InvalidLayout
from wasmline.offset_ranges import OffsetRanges, require_ranges
from wasmline.printable import bounded_line
from wasmline.registry.artifact_store import check_name
from wasmline.registry.oci_manifest import MAX_DOCUMENT_BYTES, decoded, encoded
from wasmline.registry.storage import open_storage
from wasmline.training.held_out_rows import BATCH_ROWS, decode_rows
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
from wasmline.training.stored_documents import stored_document

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDER = "slice_rows"
_ROWS, _FILE = "rows.parquet", "slice_rows.json"
_NUMBER = re.compile(r"[0-9]{6}|[1-9][0-9]{6,8}")

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
    """The records of one slice: all committed ones at ``offsets``. ``digest`` is that of their file.

    Raises ValueError for offsets that are not ranges.
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


class KeptRows:
    """The kept slices of the models of one registry, one folder each, by the number of the slice.

    Every method raises RegistryUnavailable if the storage fails, InvalidLayout for malformed content, and
    InvalidReference for an invalid name.
    """

    def __init__(self, url: str) -> None:
        self._storage = open_storage(url)

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of the kept slices of a model, in order."""
        check_name(name)
        folders = self._storage.folders(f"{FOLDER}/{name}", _FILE)
        return sorted(int(folder) for folder in folders if _NUMBER.fullmatch(folder))

    def slices(self, name: str) -> list[KeptSlice]:
        """Return the kept slices of a model. Raises UnsupportedSpecVersion if a later release wrote one."""
        return [self._slice(name, number) for number in self.numbers(name)]

    def keep(
        self, records: DataFrame, *, model: str, number: int, topic: str, topic_id: str, offsets: OffsetRanges
    ) -> str:
        """Keep the records of a slice, columns as ``read_slice`` gives them, and return "".

        A slice that is kept already stays as it is. One that is too large is not kept, and the text says so.
        """
        if number in self.numbers(model):
            return ""
        if reason := _too_large(records):
            return reason
        data = io.BytesIO()
        count = _write(rows_within(sort_rows(records.toArrow()), offsets), data)
        kept = KeptSlice(
            model=model,
            number=number,
            topic=topic,
            topic_id=topic_id,
            offsets=offsets,
            records=count,
            digest=digest_of(data.getvalue()),
        )
        try:
            document = encoded(kept, KeptSlice)
        except ValueError as error:
            raise InvalidArtifact(f"the records of slice {number} of {model} cannot be kept: {error}") from error
        self._storage.create(_folder(model, number), [(_ROWS, data.getvalue()), (_FILE, document)])
        return ""

    def read(self, kept: KeptSlice) -> pa.Table:
        """Return the records of a kept slice, in order, columns as ``read_slice`` gives them."""
        path = f"{_folder(kept.model, kept.number)}/{_ROWS}"
        try:
            return _records(self._storage.read(path, MAX_DECODED_BYTES) or b"", kept)
        except ValueError as error:
            raise self._invalid(path, f"the records of slice {kept.number} of {kept.model}", error) from error

    def _slice(self, name: str, number: int) -> KeptSlice:
        path = f"{_folder(name, number)}/{_FILE}"
        try:
            document = decoded(self._storage.read(path, MAX_DOCUMENT_BYTES) or b"", dict[str, Any])
            kept = stored_document(KeptSlice, document, f"{path} in {self._storage.url}")
            if (kept.model, kept.number) != (name, number):
                raise ValueError(f"it is about slice {kept.number} of {kept.model[:140]!r}")
        except ValueError as error:
            raise self._invalid(path, f"about slice {number} of {name}", error) from error
        return kept

    def _invalid(self, path: str, what: str, error: ValueError) -> InvalidLayout:
        return InvalidLayout(
            f"{path} in {self._storage.url} is not {what}: {bounded_line(error)}; restore it, or remove its folder",
            path=path,
        )


def _folder(name: str, number: int) -> str:
    return f"{FOLDER}/{name}/{number:06d}"


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
