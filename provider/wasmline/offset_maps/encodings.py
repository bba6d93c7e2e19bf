"""Encodes the bodies of offset maps: the incomplete ones of ``length`` offsets after a base, as bytes.

The eight encodings are those of Confluent's Parallel Consumer: a bitmap or run lengths, with fields of 16 bits (V1) or
32 (V2), plain or compressed with zstd. Its fork's delta lists are read, never written. All numbers are big-endian.

    bitmap        length, then ceil(length / 8) + 1 bytes: bit 0 of byte 0 first, 1 is complete; the last byte is spare
    run lengths   incomplete, complete, incomplete ...; the first is 0 where the base itself is complete
    delta list    length (4 bytes), then LEB128: how many incompletes, the first one, the steps to each next one

A body that no writer produces raises ValueError with the fault. The cost of a hostile body is bounded by
MAX_INCOMPLETES and MAX_BODY_BYTES, whatever it claims.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import zstandard

Offsets = npt.NDArray[np.int64]

MAX_INCOMPLETES = 2**20
"""More are rejected when reading: an incomplete is a record in the memory of a consumer, and Java's holds at most a
hundred batches per worker. So a real map has thousands, and a run of 2^31 is an attack or an accident."""

MAX_BODY_BYTES = 2**22
"""Maximum size of a decompressed body, and of a bitmap that is tried. That is one of 33 million offsets; before
that, run lengths are the smaller form, since zstd needs a block per million offsets even where all are complete."""

_MAX_RUN = 2**31 - 1
_INPUT_STEP = 64
"""Compressed bytes fed at a time. Four of them may expand to 128 KiB, so a bomb is detected before it is 2 MiB over."""


class Encoding(Enum):
    """The eight encodings that are written, in the order in which they win a tie: magic byte, then traits."""

    RUN_LENGTH = 0x6E, False, 2, False
    BIT_SET = 0x6C, True, 2, False
    RUN_LENGTH_V2 = 0x65, False, 4, False
    BIT_SET_V2 = 0x6F, True, 4, False
    RUN_LENGTH_COMPRESSED = 0x4A, False, 2, True
    BIT_SET_COMPRESSED = 0x61, True, 2, True
    RUN_LENGTH_V2_COMPRESSED = 0x70, False, 4, True
    BIT_SET_V2_COMPRESSED = 0x73, True, 4, True

    def __init__(self, magic: int, bitmap: bool, width: int, compressed: bool) -> None:
        self.magic = magic
        self.bitmap = bitmap
        self.width = width
        self.compressed = compressed


@dataclass(frozen=True, eq=False)
class OffsetMap:
    """Of ``length`` offsets those at ``incompletes`` are incomplete: distinct, ascending, counted from the base."""

    length: int
    incompletes: Offsets

    @cached_property
    def runs(self) -> Offsets:
        """The lengths of the runs. One that exceeds 32 bits is divided by runs of 0, which every reader accepts."""
        if self.length == 0:
            return np.zeros(1, np.int64)
        firsts = self.incompletes[np.diff(self.incompletes, prepend=-2) != 1]
        ends = self.incompletes[np.diff(self.incompletes, append=-2) != 1] + 1
        runs = np.diff(np.column_stack((firsts, ends)).ravel(), prepend=0, append=self.length)
        runs = runs[1:] if runs[0] == 0 else np.concatenate(([0], runs))
        return _cut(runs[:-1] if runs[-1] == 0 else runs)

    def plain_size(self, encoding: Encoding) -> int | None:
        """Return the bytes of the body before compression, or None if the map does not fit."""
        if encoding.bitmap:
            largest, size = self.length, encoding.width + self._bitmap_bytes
            fits = size <= MAX_BODY_BYTES
        else:
            largest, size = int(self.runs.max()), encoding.width * self.runs.size
            fits = True
        return size if fits and largest < 1 << (8 * encoding.width - 1) else None

    def plain(self, encoding: Encoding) -> bytes:
        """Return the body before compression; ``plain_size`` is not None."""
        if not encoding.bitmap:
            return self.runs.astype(f">i{encoding.width}").tobytes()
        bitmap = np.full(self._bitmap_bytes, 0xFF, np.uint8)
        bitmap[self.length // 8 :] = 0
        if self.length % 8:
            bitmap[self.length // 8] = (1 << self.length % 8) - 1
        bits = np.left_shift(1, self.incompletes & 7).astype(np.uint8)
        np.subtract.at(bitmap, self.incompletes >> 3, bits)
        return self.length.to_bytes(encoding.width, "big") + bitmap.tobytes()

    @property
    def _bitmap_bytes(self) -> int:
        return (self.length + 7) // 8 + 1


def compress(body: bytes) -> bytes:
    """Return a zstd frame as the Java library writes it: level 3, streamed, so without the content's size."""
    compressor = zstandard.ZstdCompressor(level=3, write_content_size=False).compressobj()
    return compressor.compress(body) + compressor.flush()


def read(payload: bytes) -> OffsetMap:
    """Return the map in a magic byte and a body. Raises ValueError."""
    magic, body = payload[0], payload[1:]
    if magic in FOREIGN:
        raise ValueError(f"its magic byte 0x{magic:02x} is that of {FOREIGN[magic]}")
    if magic not in _READERS:
        raise ValueError(f"its magic byte 0x{magic:02x} is not that of a known encoding")
    compressed, reader = _READERS[magic]
    return reader(_decompress(body) if compressed else body)


def _decompress(body: bytes) -> bytearray:
    stream = zstandard.ZstdDecompressor(max_window_size=MAX_BODY_BYTES).decompressobj()
    plain = bytearray()
    try:
        for start in range(0, len(body), _INPUT_STEP):
            plain += stream.decompress(body[start : start + _INPUT_STEP])
            if len(plain) > MAX_BODY_BYTES:
                raise ValueError(f"it expands to more than {MAX_BODY_BYTES} bytes")
    except zstandard.ZstdError as fault:
        raise ValueError(f"its zstd frame cannot be read: {fault}") from None
    if not stream.eof or stream.unused_data:
        raise ValueError("its zstd frame is truncated, or followed by other bytes")
    return plain


def _read_bitmap(body: bytes | bytearray, width: int) -> OffsetMap:
    length = _read_length(body, width)
    bitmap = np.frombuffer(body, np.uint8, offset=width)[: (length + 7) // 8].copy()
    if 8 * bitmap.size < length:
        raise ValueError(f"it claims {length} offsets and has bits for {8 * bitmap.size}")
    if length % 8:
        bitmap[-1] |= 0xFF << length % 8 & 0xFF
    _check_count(8 * bitmap.size - int(np.bitwise_count(bitmap).sum(dtype=np.int64)))
    holed = np.flatnonzero(bitmap != 0xFF)
    rows, bits = np.nonzero(np.unpackbits(~bitmap[holed, np.newaxis], axis=1, bitorder="little"))
    return OffsetMap(length, holed[rows] * 8 + bits)


def _read_runs(body: bytes | bytearray, width: int) -> OffsetMap:
    if not body or len(body) % width:
        raise ValueError(f"{len(body)} bytes are not run lengths of {width} bytes each")
    _check_count(len(body) // width // 2 - 1)
    runs = np.frombuffer(body, f">i{width}").astype(np.int64)
    if runs.min() < 0:
        raise ValueError("a run length is negative")
    incomplete = runs[::2]
    count = int(incomplete.sum())
    _check_count(count)
    ends = runs.cumsum()
    firsts = (ends - runs)[::2]
    return OffsetMap(int(ends[-1]), np.arange(count) + np.repeat(firsts - incomplete.cumsum() + incomplete, incomplete))


def _read_delta_list(body: bytes | bytearray) -> OffsetMap:
    length = _read_length(body, 4)
    numbers = _leb128(np.frombuffer(body, np.uint8, offset=4))
    if numbers[0] != numbers.size - 1:
        raise ValueError(f"it claims {numbers[0]} incomplete offsets and has {numbers.size - 1}")
    incompletes = numbers[1:].cumsum()
    if incompletes.size and (incompletes[-1] >= length or numbers[2:].min(initial=1) == 0):
        raise ValueError(f"its incompletes are not ascending below {length}")
    return OffsetMap(length, incompletes)


def _leb128(septets: npt.NDArray[np.uint8]) -> Offsets:
    ending = septets < 0x80
    if not septets.size or not ending[-1]:
        raise ValueError("its last number is truncated")
    _check_count(int(ending.sum()) - 1)
    lasts = np.flatnonzero(ending)
    firsts = np.concatenate(([0], lasts[:-1] + 1))
    widths = lasts - firsts + 1
    if widths.max() > 5:
        raise ValueError("a number of it has more than 32 bits")
    numbers = np.zeros(lasts.size, np.int64)
    for place in range(widths.max()):
        longer = widths > place
        numbers[longer] |= (septets[firsts[longer] + place] & 0x7F).astype(np.int64) << 7 * place
    return numbers


def _read_length(body: bytes | bytearray, width: int) -> int:
    length = int.from_bytes(body[:width], "big", signed=True)
    if len(body) < width or length < 0:
        raise ValueError("its length is truncated or negative")
    return length


def _check_count(incompletes: int) -> None:
    if incompletes > MAX_INCOMPLETES:
        raise ValueError(f"it claims {incompletes} incomplete offsets; no consumer holds more than {MAX_INCOMPLETES}")


def _cut(runs: Offsets) -> Offsets:
    if runs.max() <= _MAX_RUN:
        return runs
    cut: list[int] = []
    for run in runs.tolist():
        whole, rest = divmod(run, _MAX_RUN)
        cut += [_MAX_RUN, 0] * whole + [rest]
    return np.array(cut, np.int64)


FOREIGN = {
    0x01: "Kafka Streams",
    0x02: "Kafka Streams",
    0x4C: "ByteArray, which the Java library does not read either",
    0xEE: "ByteArrayCompressed, which the Java library does not read either",
}
"""Magic bytes that are known, and whose bodies cannot be read as offset maps."""

_READERS: dict[int, tuple[bool, Callable[[bytes | bytearray], OffsetMap]]] = {
    **{
        each.magic: (each.compressed, partial(_read_bitmap if each.bitmap else _read_runs, width=each.width))
        for each in Encoding
    },
    0x64: (False, _read_delta_list),
    0x44: (True, _read_delta_list),
}
