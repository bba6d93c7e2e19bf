"""Whatever is done and not done, the text says it: the codec beside a model that walks offset by offset."""

from __future__ import annotations

import base64
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from wasmline.offset_maps.codec import decode, encode, encode_as, parse
from wasmline.offset_maps.encodings import Encoding
from wasmline.testing.strategies import OffsetMap, offset_maps

WIDE_RUNS = st.lists(st.sampled_from([1, 2, 300, 32_767, 32_768, 70_000]), min_size=1, max_size=6)

SNAPSHOTS = offset_maps()
WIDE_SNAPSHOTS = offset_maps(runs=WIDE_RUNS)


def finished(base: int, highest: int, incompletes: list[int]) -> list[bool]:
    return [offset not in set(incompletes) for offset in range(base, highest + 1)]


def bitmap(done: list[bool], width: int) -> bytes:
    padded = [*done, *[False] * (-len(done) % 8)]
    octets = [sum(bit << place for place, bit in enumerate(padded[at : at + 8])) for at in range(0, len(padded), 8)]
    return len(done).to_bytes(width, "big") + bytes(octets) + b"\0"


def runs(done: list[bool], width: int) -> bytes:
    lengths = [len(list(group)) for _, group in groupby(done)] or [0]
    first = [0] if done and done[0] else []
    return b"".join(length.to_bytes(width, "big") for length in first + lengths)


@given(snapshot=SNAPSHOTS)
def test_the_plain_bodies_are_those_of_the_model(snapshot: OffsetMap) -> None:
    done = finished(*snapshot)
    for encoding in Encoding:
        if not encoding.compressed:
            body = (bitmap if encoding.bitmap else runs)(done, encoding.width)
            assert base64.b64decode(encode_as(encoding, *snapshot)) == bytes([encoding.magic]) + body


@given(snapshot=SNAPSHOTS | WIDE_SNAPSHOTS)
def test_each_encoding_gives_back_what_went_in(snapshot: OffsetMap) -> None:
    base, highest, incompletes = snapshot
    kept = tuple(offset for offset in incompletes if offset <= highest)
    for encoding in Encoding:
        try:
            text = encode_as(encoding, *snapshot)
        except ValueError:
            assert encoding.width == 2
            assert highest - base + 1 > 32_767
            continue
        assert parse(text, base) == (highest, kept)


@given(snapshot=SNAPSHOTS)
def test_the_text_is_the_shortest_that_the_rules_allow(snapshot: OffsetMap) -> None:
    if not snapshot[2]:
        assert encode(*snapshot) == ""
        return
    lengths = {encoding: len(base64.b64decode(encode_as(encoding, *snapshot))) - 1 for encoding in Encoding}
    plain = {encoding: length for encoding, length in lengths.items() if not encoding.compressed}
    allowed = plain if min(plain.values()) < 200 else lengths
    assert len(base64.b64decode(encode(*snapshot))) - 1 == min(allowed.values())


@given(snapshot=SNAPSHOTS | WIDE_SNAPSHOTS, order=st.randoms(use_true_random=False))
def test_writing_again_what_was_read_gives_the_same_text_in_whatever_order(
    snapshot: OffsetMap, order: st.DataObject
) -> None:
    base, _, incompletes = snapshot
    text = encode(*snapshot)
    highest, read = decode(text, base)
    if read:
        assert encode(base, highest, read) == text
    order.shuffle(incompletes)  # type: ignore[attr-defined]
    assert encode(base, snapshot[1], incompletes) == text
