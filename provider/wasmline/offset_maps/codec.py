"""Encodes a partition's progress as commit metadata, compatible with Confluent's Parallel Consumer.

The committed offset, ``base``, is the lowest incomplete one. The text lists the other incomplete offsets up to the
highest succeeded one, so that the next owner of the partition runs those and skips the finished ones: Base64 of a
magic byte and a body (``encodings``). Two formats of the library's fork are read as well: Z85 after a ``%``, and an
envelope with an embedder's bytes before the map.

Everything here is a pure function. All offsets are absolute. The format: docs/protocols/offset_maps.md.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable

import numpy as np

from wasmline.errors import InvalidOffsetMetadata
from wasmline.offset_maps.encodings import Encoding, OffsetMap, Offsets, compress, read

COMPRESSION_THRESHOLD = 200
"""Bytes of a plain body from which compressed bodies are tried, as in the Java library."""

_MAX_OFFSET = 2**63 - 1
_ENVELOPE = b"X"
_Z85 = {
    character: digit
    for digit, character in enumerate(
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    )
}
"""The digits of https://rfc.zeromq.org/spec/32."""


def encode(base: int, highest_succeeded: int, incompletes: Iterable[int]) -> str:
    """Return the shortest text, which is "" if nothing is incomplete; it may exceed the limits of ``limits``.

    All three must come from one snapshot: the text is relative to ``base`` and valid for a commit of that offset only.
    ``incompletes`` may be in any order; ascending is fastest, and the cost grows with their number, hardly with the
    range. Those above ``highest_succeeded`` are omitted, since a reader treats them as new. Raises ValueError if an
    incomplete lies below ``base``, or a number is not an offset.
    """
    relative = _relative(base, highest_succeeded, incompletes)
    if not relative.size:
        return ""
    offsets = _offset_map(base, highest_succeeded, relative)
    sizes = {
        encoding: size
        for encoding in Encoding
        if not encoding.compressed and (size := offsets.plain_size(encoding)) is not None
    }
    smallest = min(sizes, key=sizes.__getitem__)
    if sizes[smallest] < COMPRESSION_THRESHOLD:
        return _text(smallest, offsets.plain(smallest))
    plain = {encoding: offsets.plain(encoding) for encoding in sizes}
    compressed = {_COMPRESSED[encoding]: compress(body) for encoding, body in plain.items()}
    return _text(*min((plain | compressed).items(), key=lambda candidate: len(candidate[1])))


def encode_as(encoding: Encoding, base: int, highest_succeeded: int, incompletes: Iterable[int]) -> str:
    """Return the text in one encoding, for empty maps too. Raises ValueError if the map does not fit."""
    offsets = _offset_map(base, highest_succeeded, _relative(base, highest_succeeded, incompletes))
    if offsets.plain_size(encoding) is None:
        raise ValueError(f"{encoding.name} cannot hold a map of {offsets.length} offsets")
    body = offsets.plain(encoding)
    return _text(encoding, compress(body) if encoding.compressed else body)


def decode(metadata: str | None, base: int) -> tuple[int, tuple[int, ...]]:
    """Return the highest succeeded offset and the incompletes below it, ascending.

    An offset is finished if it is not above the first and not in the second. Metadata that is absent or cannot be
    read gives ``(base - 1, ())``: nothing from ``base`` on counts as finished, so nothing is lost. Never raises;
    ``parse`` distinguishes the two cases.
    """
    try:
        return parse(metadata, base)
    except InvalidOffsetMetadata:
        return base - 1, ()


def parse(metadata: str | None, base: int) -> tuple[int, tuple[int, ...]]:
    """Return the result of ``decode``, but raise InvalidOffsetMetadata for metadata that cannot be read.

    One NUL at the end is ignored: confluent-kafka up to 2.16.1 writes one too many.
    """
    text = (metadata or "").removesuffix("\0")
    try:
        payload = _unwrapped(_payload(text))
        offsets = read(payload) if payload else OffsetMap(0, np.zeros(0, np.int64))
        if payload and not 0 <= base <= _MAX_OFFSET - offsets.length:
            raise ValueError(f"{offsets.length} offsets from {base} on are not offsets of a partition")
    except ValueError as fault:
        raise InvalidOffsetMetadata(
            f"the metadata committed with offset {base} cannot be read: {fault}. Records from {base} on that were "
            "finished before run again; if this repeats, another program commits to this consumer group",
            offset=base,
            reason=str(fault),
        ) from None
    return base + offsets.length - 1, tuple((offsets.incompletes + base).tolist())


def _relative(base: int, highest_succeeded: int, incompletes: Iterable[int]) -> Offsets:
    if not 0 <= base <= _MAX_OFFSET or not -1 <= highest_succeeded < _MAX_OFFSET:
        raise ValueError(f"{base} to commit and {highest_succeeded} as the highest succeeded are not offsets")
    try:
        offsets = np.fromiter(incompletes, np.int64)
    except OverflowError:
        raise ValueError(f"an incomplete offset is above {_MAX_OFFSET}") from None
    if (offsets[1:] <= offsets[:-1]).any():
        offsets = np.unique(offsets)
    if offsets.size and offsets[0] < base:
        raise ValueError(f"offset {offsets[0]} is incomplete and below {base}, the offset to commit")
    return offsets - base


def _offset_map(base: int, highest_succeeded: int, relative: Offsets) -> OffsetMap:
    length = max(highest_succeeded - base + 1, 0)
    return OffsetMap(length, relative[: np.searchsorted(relative, length)])


def _text(encoding: Encoding, body: bytes) -> str:
    return base64.b64encode(bytes([encoding.magic]) + body).decode()


def _payload(text: str) -> bytes:
    return _z85(text[1:]) if text.startswith("%") else base64.b64decode(text, validate=True)


def _z85(text: str) -> bytes:
    missing = -len(text) % 5
    if missing == 4 or not text or not _Z85.keys() >= set(text):
        raise ValueError("it is not Z85")
    digits = [_Z85[character] for character in text] + [84] * missing
    values = []
    for start in range(0, len(digits), 5):
        value = 0
        for digit in digits[start : start + 5]:
            value = value * 85 + digit
        values.append(value)
    if max(values) >= 2**32:
        raise ValueError("it is not Z85: a group has more than 32 bits")
    last = values[-1] >> 8 * missing << 8 * missing
    if last // 85**missing != values[-1] // 85**missing:
        raise ValueError("it is not Z85: its last group stands for no bytes")
    return np.array(values, ">u4").tobytes()[: 4 * len(values) - missing]


def _unwrapped(payload: bytes) -> bytes:
    if not payload.startswith(_ENVELOPE):
        return payload
    start = 3 + int.from_bytes(payload[1:3], "big")
    if len(payload) < start:
        raise ValueError("its envelope is truncated")
    return payload[start:]


_COMPRESSED = {
    plain: compressed
    for plain in Encoding
    for compressed in Encoding
    if compressed.compressed and (plain.bitmap, plain.width) == (compressed.bitmap, compressed.width)
}
