"""Provenance: the header of an output that names its input record, its transform and its model.

Its value is ASCII text, with one space between fields. The format: docs/protocols/provenance.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wasmline.model_reference import ModelReference
from wasmline.record_batches import HEADERS, merged_headers
from wasmline.topic_partitions import TopicPartition

NAME = "wasmline.provenance"
"""The name of the header."""

MAX_BYTES = 1_024
"""Maximum bytes of a value that is parsed."""

DIGEST_LETTERS = 12
"""Hexadecimal digits of a digest, without ``sha256:``."""

MAX_PARTITION = 2**31 - 1
MAX_OFFSET = 2**63 - 1

_NAME = r"[A-Za-z0-9._-]{1,128}"
_VERSION = r"[0-9A-Za-z.+-]{1,128}"
_DIGEST = rf"[0-9a-f]{{{DIGEST_LETTERS}}}"
_VALUE = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249}) (?P<partition>0|[1-9][0-9]{0,9}) (?P<offset>0|[1-9][0-9]{0,18}) "
    rf"(?P<name>{_NAME})@(?P<version>{_VERSION}) (?P<digest>{_DIGEST})"
    rf"(?P<model> (?P<model_name>{_NAME})@(?P<model_version>{_VERSION}) "
    rf"(?P<model_digest>{_DIGEST}) (?P<dataset>{_DIGEST}))?"
)

PATTERN = re.sub(r"\?P<\w+>", "", _VALUE.pattern)
"""A regular expression for the value, without names of groups, which each language writes in its own way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortModelReference:
    """A model version, and the first digits of its digest and of its dataset's."""

    name: str
    version: str
    digest: str
    dataset: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The origin of one output. ``digest`` has the first digits of the module's."""

    source: TopicPartition
    offset: int
    name: str
    version: str
    digest: str
    model: ShortModelReference | None = None


class ProvenanceWriter:
    """Writes the header's values for the outputs of one deployment."""

    def __init__(self, topic: str, *, name: str, version: str, digest: str, model: ModelReference | None) -> None:
        """``topic`` is the input topic, and ``digest`` the module's, ``sha256:…``."""
        self._topic = topic
        self._origin = f"{name}@{version} {_short(digest)}"
        if model is not None:
            self._origin += f" {model} {_short(model.digest)} {_short(model.dataset)}"

    def value(self, partition: int, offset: int) -> bytes:
        """Return the value for an output of one record."""
        return f"{self._topic} {partition} {offset} {self._origin}".encode()

    def column(self, partitions: pa.Array | pa.Scalar, offsets: pa.Array) -> pa.Array:
        """Return the values for outputs of the records at these coordinates; a scalar is the partition of all."""
        numbers = (each.cast(pa.string()) for each in (partitions, offsets))
        text = pc.binary_join_element_wise(self._topic, *numbers, self._origin, " ")
        return text.cast(pa.binary())


def parse(value: bytes | None) -> Provenance | None:
    """Return the provenance in a header's value, or None for any other bytes."""
    if value is None or len(value) > MAX_BYTES or not value.isascii():
        return None
    found = _VALUE.fullmatch(value.decode())
    if found is None or int(found["partition"]) > MAX_PARTITION or int(found["offset"]) > MAX_OFFSET:
        return None
    model = None
    if found["model"]:
        model = ShortModelReference(
            name=found["model_name"],
            version=found["model_version"],
            digest=found["model_digest"],
            dataset=found["dataset"],
        )
    return Provenance(
        source=TopicPartition(found["topic"], int(found["partition"])),
        offset=int(found["offset"]),
        name=found["name"],
        version=found["version"],
        digest=found["digest"],
        model=model,
    )


def without_header(headers: pa.ListArray) -> pa.ListArray:
    """Return a column of HEADERS without the header of this name, which only the host writes."""
    if not pc.any(_has_name(pc.list_flatten(headers))).as_py():
        return headers
    return with_header(headers, pa.nulls(len(headers), pa.binary()))


def with_header(headers: pa.ListArray, values: pa.Array) -> pa.ListArray:
    """Return a column of HEADERS in which this header is the last of each row; not there where its value is null."""
    pairs, rows = pc.list_flatten(headers), pc.list_parent_indices(headers)
    others = pc.invert(_has_name(pairs))
    added = values.drop_null()
    ours = pa.StructArray.from_arrays([pa.repeat(NAME, len(added)), added], fields=list(HEADERS.value_type))
    is_added = values.is_valid().to_numpy(zero_copy_only=False)
    parts = [(rows.filter(others).to_numpy(), pairs.filter(others)), (np.flatnonzero(is_added), ours)]
    return merged_headers(len(headers), parts)


def _has_name(pairs: pa.StructArray) -> pa.Array:
    """Whether a header has this name, which ends at a NUL for clients in C."""
    names = pc.struct_field(pairs, 0)
    return pc.or_(pc.equal(names, NAME), pc.starts_with(names, f"{NAME}\0"))


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:DIGEST_LETTERS]
