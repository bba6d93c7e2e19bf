"""The text of known maps, byte for byte, and what is made of text that is no map.

The table and the 300 maps were written by Confluent's own classes; compressed forms are compared by reading them, since
their bytes belong to the version of zstd.
"""

from __future__ import annotations

import base64
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from wasmline.errors import InvalidOffsetMetadata
from wasmline.offset_maps import DEFAULT_LIMITS
from wasmline.offset_maps.codec import COMPRESSION_THRESHOLD, decode, encode, encode_as, parse
from wasmline.offset_maps.encodings import MAX_BODY_BYTES, MAX_INCOMPLETES, Encoding

VECTORS = Path(__file__).parents[4] / "shared/vectors/offset_metadata.tsv"

NAMES = {
    "RunLength": Encoding.RUN_LENGTH,
    "BitSet": Encoding.BIT_SET,
    "RunLengthV2": Encoding.RUN_LENGTH_V2,
    "BitSetV2": Encoding.BIT_SET_V2,
    "RunLengthCompressed": Encoding.RUN_LENGTH_COMPRESSED,
    "BitSetCompressed": Encoding.BIT_SET_COMPRESSED,
    "RunLengthV2Compressed": Encoding.RUN_LENGTH_V2_COMPRESSED,
    "BitSetV2Compressed": Encoding.BIT_SET_V2_COMPRESSED,
}

MIXED = 100, 109, (100, 102, 103, 107)
EMPTY_RANGE = 10, 9, (10, 12)
WIDE = 5, 50_000, (5,)
HALF = 1000, 1999, tuple(range(1000, 2000, 2))
LARGE_HALF = 0, 3999, tuple(range(0, 4000, 2))
TIE = 0, 7, (0,)
COMPLETE_BASE = 0, 3, (2,)

Map = tuple[int, int, tuple[int, ...]]

TEXTS: list[tuple[str, Map, str]] = [
    ("BitSet", MIXED, "bAAKcgMA"),
    ("BitSetV2", MIXED, "bwAAAApyAwA="),
    ("RunLength", MIXED, "bgABAAEAAgADAAEAAg=="),
    ("RunLengthV2", MIXED, "ZQAAAAEAAAABAAAAAgAAAAMAAAABAAAAAg=="),
    ("BitSetCompressed", MIXED, "YSi1L/0AWCkAAAAKcgMA"),
    ("BitSetV2Compressed", MIXED, "cyi1L/0AWDkAAAAAAApyAwA="),
    ("RunLengthCompressed", MIXED, "Sii1L/0AWGEAAAABAAEAAgADAAEAAg=="),
    ("RunLengthV2Compressed", MIXED, "cCi1L/0AWMEAAAAAAAEAAAABAAAAAgAAAAMAAAABAAAAAg=="),
    ("BitSet", EMPTY_RANGE, "bAAAAA=="),
    ("BitSetV2", EMPTY_RANGE, "bwAAAAAA"),
    ("RunLength", EMPTY_RANGE, "bgAA"),
    ("RunLengthV2", EMPTY_RANGE, "ZQAAAAA="),
    ("RunLengthV2", WIDE, "ZQAAAAEAAMNL"),
    ("RunLengthCompressed", LARGE_HALF, "Sii1L/0AWE0AABAAAQEAO1/vsA=="),
    ("BitSetCompressed", LARGE_HALF, "YSi1L/0AWF0AACAPoKoAAQDwKhgC"),
    ("RunLengthV2Compressed", LARGE_HALF, "cCi1L/0AWGUAACAAAAABAQB5ft4RAQ=="),
    ("BitSetV2Compressed", LARGE_HALF, "cyi1L/0AWG0AADAAAA+gqgABAPAq0AI="),
    ("BitSet", TIE, "bAAI/gA="),
    ("BitSetV2", TIE, "bwAAAAj+AA=="),
    ("RunLength", TIE, "bgABAAc="),
    ("RunLengthV2", TIE, "ZQAAAAEAAAAH"),
    ("BitSet", COMPLETE_BASE, "bAAECwA="),
    ("BitSetV2", COMPLETE_BASE, "bwAAAAQLAA=="),
    ("RunLength", COMPLETE_BASE, "bgAAAAIAAQAB"),
    ("RunLengthV2", COMPLETE_BASE, "ZQAAAAAAAAACAAAAAQAAAAE="),
]


def b64(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


def payload(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def frame(body: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(body)


def content(of: Map) -> tuple[int, tuple[int, ...]]:
    """What reading a map gives: incompletes above the highest succeeded offset are not in it."""
    _, highest, incompletes = of
    return highest, tuple(offset for offset in incompletes if offset <= highest)


def reason(metadata: str, base: int = 100) -> str:
    """Why the metadata cannot be read; that ``decode`` then knows of nothing finished is checked by the way."""
    assert decode(metadata, base) == (base - 1, ())
    with pytest.raises(InvalidOffsetMetadata) as caught:
        parse(metadata, base)
    assert caught.value.offset == base
    assert caught.value.reason in str(caught.value)
    return caught.value.reason


@pytest.mark.parametrize(("name", "of", "text"), TEXTS)
def test_a_known_map_has_the_known_text_and_is_read_from_it(name: str, of: Map, text: str) -> None:
    assert decode(text, of[0]) == parse(text, of[0]) == content(of)
    mine = encode_as(NAMES[name], *of)
    if NAMES[name].compressed:
        assert mine[:2] == text[:2]
        assert decode(mine, of[0]) == content(of)
    else:
        assert mine == text


@pytest.mark.parametrize(
    ("of", "text"),
    [(MIXED, "bAAKcgMA"), (EMPTY_RANGE, "bgAA"), (WIDE, "ZQAAAAEAAMNL"), (COMPLETE_BASE, "bAAECwA=")],
)
def test_the_smallest_encoding_wins(of: Map, text: str) -> None:
    assert encode(*of) == text


def test_on_a_tie_run_lengths_win() -> None:
    assert encode(*TIE) == "bgABAAc="


def test_nothing_is_compressed_while_a_plain_body_is_small() -> None:
    text = encode(*HALF)
    assert payload(text) == b"l\x03\xe8" + b"\xaa" * 125 + b"\0"
    assert len(encode_as(Encoding.RUN_LENGTH_COMPRESSED, *HALF)) < len(text)


def test_everything_is_compressed_once_no_plain_body_is_small() -> None:
    assert payload(encode(*LARGE_HALF))[0] == Encoding.RUN_LENGTH_COMPRESSED.magic


def test_a_map_that_does_not_compress_stays_plain() -> None:
    incompletes = [offset for offset in range(4000) if pow(3, offset, 65_537) % 2]
    assert payload(encode(0, 3999, incompletes))[0] == Encoding.BIT_SET.magic


@pytest.mark.parametrize(("runs", "compressed"), [(99, False), (100, True)])
def test_compression_begins_at_two_hundred_bytes_of_body(runs: int, compressed: bool) -> None:
    assert COMPRESSION_THRESHOLD == 200
    # Each two runs take four bytes as run lengths and fifty as a bitmap: run lengths decide.
    incompletes = range(0, 400 * (runs // 2 + runs % 2), 400)
    highest = incompletes[-1] + (0 if runs % 2 else 1)
    assert len(payload(encode_as(Encoding.RUN_LENGTH, 0, highest, incompletes))) == 1 + 2 * runs
    assert (payload(encode(0, highest, incompletes))[0] == Encoding.RUN_LENGTH.magic) is not compressed


@pytest.mark.parametrize("name", ["BitSet", "RunLength", "BitSetCompressed", "RunLengthCompressed"])
def test_a_sixteen_bit_form_ends_at_32767(name: str) -> None:
    fits, too_long = 32_767 - (name[0] == "B"), 32_768 - (name[0] == "B")
    assert decode(encode_as(NAMES[name], 0, fits, [0]), 0) == (fits, (0,))
    with pytest.raises(ValueError, match=f"{too_long + 1} offsets"):
        encode_as(NAMES[name], 0, too_long, [0])


def test_a_run_may_be_longer_than_32_bits_hold() -> None:
    highest = 10 + 5 * 2**31
    text = encode(10, highest, [10, highest - 1])
    assert len(text) < 80
    assert decode(text, 10) == (highest, (10, highest - 1))


def test_a_wide_range_with_few_incompletes_costs_no_bitmap() -> None:
    tracemalloc.start()
    try:
        text = encode(0, 2**40, range(0, 2**20, 2**10))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert decode(text, 0) == (2**40, tuple(range(0, 2**20, 2**10)))


def test_where_nothing_is_incomplete_there_is_no_metadata() -> None:
    assert encode(110, 109, ()) == encode(0, -1, ()) == encode(100, 109, ()) == ""


def test_offsets_above_the_highest_succeeded_are_not_written() -> None:
    assert encode(100, 109, [*MIXED[2], 110, 5000]) == encode(*MIXED)


@pytest.mark.parametrize(("base", "highest"), [(0, -1), (10, 9), (10, 3), (10, -1)])
def test_before_anything_succeeded_the_map_claims_nothing(base: int, highest: int) -> None:
    assert encode(base, highest, [base, base + 1]) == "bgAA"
    assert decode("bgAA", base) == (base - 1, ())


def test_an_incomplete_offset_that_is_the_highest_stays_incomplete() -> None:
    # A foreign map may end with incompletes; written again, it must not turn them into finished ones.
    text = b64(b"n\0\1\0\2\0\3")
    assert decode(text, 7) == (12, (7, 10, 11, 12))
    assert decode(encode(7, 12, [7, 10, 11, 12]), 7) == (12, (7, 10, 11, 12))


@pytest.mark.parametrize("incompletes", [[107, 100, 103, 102], {100, 102, 103, 107}, [100, 100, 102, 103, 103, 107]])
def test_incompletes_may_come_in_any_order_and_twice(incompletes: list[int]) -> None:
    assert encode(100, 109, incompletes) == encode(100, 109, iter(incompletes)) == encode(*MIXED)


@pytest.mark.parametrize(
    ("base", "highest", "incompletes"),
    [
        (100, 109, (99, 100)),
        (100, 109, (105, 99)),
        (-1, 109, (100,)),
        (100, -2, (100,)),
        (2**63, 2**63, (2**63,)),
        (100, 2**63, (100,)),
        (100, 109, (100, 2**63)),
    ],
)
def test_what_is_no_snapshot_is_refused(base: int, highest: int, incompletes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"offset"):
        encode(base, highest, incompletes)


def test_a_text_may_be_longer_than_a_broker_takes_and_is_whole() -> None:
    incompletes = [offset for offset in range(200_000) if pow(3, offset, 65_537) % 3 == 0]
    text = encode(0, 200_000, incompletes)
    assert len(text) > DEFAULT_LIMITS.max_metadata_length
    assert decode(text, 0) == (200_000, tuple(incompletes))


def rows() -> Iterator[tuple[int, int, tuple[int, ...], bool, dict[str, str], str]]:
    """Base, highest succeeded, incompletes, whether Java was told to compress, its encodings, the one it chose."""
    if not VECTORS.exists():
        pytest.skip(f"needs {VECTORS.name}, the maps that Confluent's own classes wrote, beside the checkout")
    for line in VECTORS.read_text().splitlines():
        base, highest, forced, relative, encodings, chosen = line.split("\t")
        incompletes = tuple(int(base) + int(step) for step in relative.split(",") if step)
        texts = dict(item.split("=", 1) for item in encodings.split(","))
        yield int(base), int(highest), incompletes, forced == "true", texts, chosen


def test_every_encoding_that_java_wrote_is_read_as_the_map_it_was() -> None:
    seen = set()
    for base, highest, incompletes, _, texts, _ in rows():
        for name, text in texts.items():
            assert parse(text, base) == (highest, incompletes), (name, text)
            seen.add(name)
    assert seen == set(NAMES)


def test_every_plain_encoding_has_javas_bytes_and_every_compressed_one_its_content() -> None:
    for base, highest, incompletes, _, texts, _ in rows():
        for name, text in texts.items():
            mine = encode_as(NAMES[name], base, highest, incompletes)
            if NAMES[name].compressed:
                assert payload(mine)[0] == payload(text)[0]
                assert parse(mine, base) == (highest, incompletes)
            else:
                assert mine == text
        for name in {"RunLength", "BitSet"} - texts.keys():
            with pytest.raises(ValueError, match="cannot hold"):
                encode_as(NAMES[name], base, highest, incompletes)


def test_the_choice_is_as_small_as_javas() -> None:
    compared = 0
    for base, highest, incompletes, forced, texts, chosen in rows():
        legal = [text for name, text in texts.items() if not NAMES[name].compressed]
        if forced and min(map(len, map(payload, legal))) <= COMPRESSION_THRESHOLD:
            chosen = min(legal, key=len)  # Java compresses such a map only when told to
        if incompletes:
            assert len(encode(base, highest, incompletes)) == len(chosen)
            compared += 1
    assert compared > 280


def test_absent_metadata_is_the_empty_map() -> None:
    assert parse(None, 100) == parse("", 100) == parse("\0", 100) == (99, ())


def test_one_nul_at_the_end_is_not_part_of_the_text() -> None:
    assert parse("bAAKcgMA\0", 100) == content(MIXED)
    assert reason("bAAKcgMA\0\0")


def test_a_bitmap_may_lack_its_spare_byte_or_have_more() -> None:
    for spare in (b"", b"\0", b"\0\0\xff"):
        assert parse(b64(b"l\0\x0a\x72\x03" + spare), 100) == content(MIXED)


def test_bits_after_the_last_offset_mean_nothing() -> None:
    assert parse(b64(b"l\0\x0a\x72\xff"), 100) == content(MIXED)


def test_a_frame_may_tell_the_size_of_its_content() -> None:
    assert parse(b64(b"a" + frame(b"\0\x0a\x72\x03\0")), 100) == content(MIXED)


def test_a_delta_list_is_read() -> None:
    body = bytes.fromhex("0000000b06000402010102")
    found = 110, (100, 104, 106, 107, 108, 110)
    assert parse(b64(b"d" + body), 100) == parse(b64(b"D" + frame(body)), 100) == found
    assert parse(b64(b"d\0\0\x10\0\2\x81\x01\x80\x02"), 0) == (4095, (129, 385))
    assert parse(b64(b"d\0\0\0\5\0"), 100) == (104, ())


def test_an_envelope_is_taken_off() -> None:
    assert parse(b64(b"X\0\3any" + payload("bAAKcgMA")), 100) == content(MIXED)
    assert parse(b64(b"X\0\0" + payload("bAAKcgMA")), 100) == content(MIXED)
    assert parse(b64(b"X\0\3any"), 100) == (99, ())


Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def z85(data: bytes) -> str:
    missing = -len(data) % 4
    padded = data + bytes(missing)
    words = (int.from_bytes(padded[start : start + 4], "big") for start in range(0, len(padded), 4))
    text = "".join(Z85[word // 85**place % 85] for word in words for place in (4, 3, 2, 1, 0))
    return text[: len(text) - missing]


def test_z85_is_read_whatever_its_last_group() -> None:
    assert z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"
    for runs in (1, 2, 3, 4):
        body = b"n" + bytes.fromhex("00010002000300ff")[: 2 * runs]
        assert parse("%" + z85(body), 100) == parse(b64(body), 100)
    bitmap = b"l\0\x0a\x72\x03\xff"
    assert [len(bitmap[:end]) % 4 for end in (5, 6)] == [1, 2]
    assert parse("%" + z85(bitmap[:5]), 100) == parse("%" + z85(bitmap), 100) == content(MIXED)


@pytest.mark.parametrize("text", ["%", "%0", "%00000A", "%HelloWorl~", "%#####", "%000000#", "%é"])
def test_what_is_not_z85_is_refused(text: str) -> None:
    assert "Z85" in reason(text)


@pytest.mark.parametrize("magic", [1, 2])
def test_kafka_streams_metadata_is_named(magic: int) -> None:
    assert "Kafka Streams" in reason(b64(bytes([magic]) + (123456).to_bytes(8, "big")))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("some words", "base64"),
        ("bAAKcgM", "padding"),
        ("bAAKcgMA\n", "base64"),
        ("bAAKcgMé", "ASCII"),
        ("\ud800", "ASCII"),
        (b64(b"L\0\1"), "ByteArray"),
        (b64(b"\xee\0\1"), "ByteArrayCompressed"),
        (b64(b"Q\0\1"), "0x51"),
        (b64(b"X"), "envelope"),
        (b64(b"X\0\4any"), "envelope"),
        (b64(b"X\0\0X\0\0"), "0x58"),
        (b64(b"l"), "length"),
        (b64(b"l\0"), "length"),
        (b64(b"o\0\0\0"), "length"),
        (b64(b"l\xff\xff\0"), "negative"),
        (b64(b"l\0\x0a\x72"), "10 offsets"),
        (b64(b"o\x7f\xff\xff\xff\xff"), "2147483647 offsets"),
        (b64(b"n"), "run lengths"),
        (b64(b"n\0\1\0"), "run lengths"),
        (b64(b"e\0\0\0\1\0\1"), "run lengths"),
        (b64(b"n\0\1\xff\xff"), "negative"),
        (b64(b"d\0\0\0\5"), "truncated"),
        (b64(b"d\0\0\0\5\2\1"), "incomplete offsets and has"),
        (b64(b"d\0\0\0\5\1\1\1"), "incomplete offsets and has"),
        (b64(b"d\0\0\0\5\1\5"), "ascending"),
        (b64(b"d\0\0\0\5\2\1\0"), "ascending"),
        (b64(b"d\0\0\0\5\1\x81"), "truncated"),
        (b64(b"d\0\0\0\5\1\x81\x81\x81\x81\x81\x01"), "32 bits"),
        (b64(b"d\xff\xff\xff\xff\0"), "negative"),
        (b64(b"a"), "zstd"),
        (b64(b"a" + b"no frame"), "zstd"),
        (b64(b"a" + frame(b"\0\x0a\x72\x03\0")[:-1]), "truncated"),
        (b64(b"a" + frame(b"\0\x0a\x72\x03\0") + b"\0"), "followed by other bytes"),
        (b64(b"a" + frame(b"\0\x0a\x72\x03\0") * 2), "followed by other bytes"),
    ],
)
def test_what_is_no_map_is_refused_with_the_reason(text: str, why: str) -> None:
    assert why.lower() in reason(text).lower()


@pytest.mark.parametrize("base", [-1001, -1, 2**63 - 10, 2**70])
def test_offsets_that_no_partition_has_are_refused(base: int) -> None:
    assert "offsets of a partition" in reason("bAAKcgMA", base)


def test_the_highest_offset_of_all_can_be_read() -> None:
    assert parse("bAAKcgMA", 2**63 - 11)[0] == 2**63 - 2


BOMBS = {
    "one run": b"e\x7f\xff\xff\xff",
    "many runs": b"n" + b"\x7f\xff\0\0" * 700,
    "runs of nothing": b"p" + frame(bytes(MAX_BODY_BYTES)),
    "a bitmap of zeros": b"s" + frame((8 * MAX_BODY_BYTES - 32).to_bytes(4, "big") + bytes(MAX_BODY_BYTES - 4)),
    "one too many": b"e" + (MAX_INCOMPLETES + 1).to_bytes(4, "big"),
    "a delta list of steps": b"D" + frame(b"\x7f\xff\xff\xff\xff\xff\xff\x07" + b"\1" * (MAX_BODY_BYTES - 8)),
    "a delta list of padding": b"D" + frame(b"\x7f\xff\xff\xff" + b"\x80\x80\x80\0" * (MAX_BODY_BYTES // 4 - 1)),
    "a bomb": b"s" + zstandard.ZstdCompressor(write_content_size=False).compressobj(size=-1).compress(bytes(2**25)),
    "a frame that claims a terabyte": b"s\x28\xb5\x2f\xfd\xe0" + (2**40).to_bytes(8, "little") + b"\1\0\0",
}


@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS)
def test_a_few_bytes_that_claim_millions_of_offsets_cost_little_and_give_nothing(body: bytes) -> None:
    tracemalloc.start()
    try:
        assert decode(b64(body), 100) == (99, ())
        assert tracemalloc.get_traced_memory()[1] < 16 * MAX_BODY_BYTES
    finally:
        tracemalloc.stop()


def test_as_many_incompletes_as_are_allowed_are_read() -> None:
    text = encode(5, 5 + MAX_INCOMPLETES, range(5, 5 + MAX_INCOMPLETES))
    assert parse(text, 5) == (5 + MAX_INCOMPLETES, tuple(range(5, 5 + MAX_INCOMPLETES)))
