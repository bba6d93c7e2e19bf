"""Whatever stands beside a committed offset, reading it ends well and calls nothing finished that was not."""

from __future__ import annotations

import base64
import os
from itertools import pairwise

import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from wasmline.errors import InvalidOffsetMetadata
from wasmline.offset_maps.codec import decode, encode, encode_as, parse
from wasmline.offset_maps.encodings import MAX_INCOMPLETES, Encoding

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "500"))

BASES = st.sampled_from([0, 1, 100, 2**40, 2**63 - 1])
MAGICS = st.sampled_from([*[encoding.magic for encoding in Encoding], 0x64, 0x44, 0x58, 0x01, 0x02, 0x4C, 0xEE, 0x51])
COMPRESSED = {*[encoding.magic for encoding in Encoding if encoding.compressed], 0x44}
BODIES = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from([b"\0", b"\xff", b"\x7f", b"\x80", b"\x01"]), max_size=24).map(b"".join),
)


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """A magic byte and a body: as it is, in a frame if that is asked for, in an envelope now and then."""
    magic, body = draw(MAGICS), draw(BODIES)
    if magic in COMPRESSED and draw(st.booleans()):
        body = zstandard.ZstdCompressor(write_content_size=draw(st.booleans())).compress(body)
    envelope = draw(st.sampled_from([b"", b"", b"X\0\2ab"]))
    return envelope + bytes([magic]) + body


@st.composite
def maps(draw: st.DrawFn) -> tuple[int, int, list[int], bytes]:
    """Base, highest succeeded, incompletes, and the payload of their map in some encoding."""
    base = draw(st.sampled_from([0, 100, 2**40]))
    highest = base + draw(st.integers(0, 3000))
    incompletes = sorted(draw(st.sets(st.integers(base, highest - 1), max_size=40)) if highest > base else ())
    encoding = draw(st.sampled_from(list(Encoding)))
    return base, highest, incompletes, base64.b64decode(encode_as(encoding, base, highest, incompletes))


def check(metadata: str, base: int) -> tuple[int, tuple[int, ...]]:
    highest, incompletes = found = decode(metadata, base)
    assert base - 1 <= highest <= max(base - 1, 2**63 - 2)
    assert len(incompletes) <= MAX_INCOMPLETES
    assert all(first < second for first, second in pairwise(incompletes))
    if incompletes:
        assert base <= incompletes[0]
        assert incompletes[-1] <= highest
        assert decode(encode(base, highest, incompletes), base) == found
    try:
        assert parse(metadata, base) == found
    except InvalidOffsetMetadata:
        assert found == (base - 1, ())
    return found


def finished(highest: int, incompletes: tuple[int, ...] | list[int], base: int) -> set[int]:
    return set(range(base, highest + 1)) - set(incompletes)


@settings(max_examples=EXAMPLES, deadline=None)
@given(text=st.one_of(st.text(), st.text("%AB9+/=lnJ\0", max_size=12)), base=BASES)
def test_any_text_is_read_as_a_map_or_as_none(text: str, base: int) -> None:
    check(text, base)


@settings(max_examples=EXAMPLES, deadline=None)
@given(payload=payloads(), base=BASES)
def test_any_body_is_read_as_a_map_or_as_none(payload: bytes, base: int) -> None:
    check(base64.b64encode(payload).decode(), base)


@settings(max_examples=EXAMPLES, deadline=None)
@given(of=maps(), data=st.data())
def test_a_map_with_wrong_bytes_is_read_as_a_map_or_as_none(
    of: tuple[int, int, list[int], bytes], data: st.DataObject
) -> None:
    base, _, _, payload = of
    wrong = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 3))):
        wrong[data.draw(st.integers(0, len(wrong) - 1))] = data.draw(st.integers(0, 255))
    check(base64.b64encode(wrong).decode(), base)


@settings(max_examples=EXAMPLES, deadline=None)
@given(of=maps(), data=st.data())
def test_a_torn_map_calls_nothing_finished_that_was_not(
    of: tuple[int, int, list[int], bytes], data: st.DataObject
) -> None:
    base, highest, incompletes, payload = of
    text = base64.b64encode(payload).decode()
    torn = data.draw(
        st.one_of(
            st.integers(0, len(text) - 1).map(lambda end: text[:end]),
            st.integers(0, len(payload) - 1).map(lambda end: base64.b64encode(payload[:end]).decode()),
        )
    )
    assert finished(*check(torn, base), base) <= finished(highest, incompletes, base)
