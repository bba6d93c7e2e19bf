"""The headers of dead letters, for any failure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline import dead_letters
from wasmline.topic_partitions import TopicPartition

NAMES = st.sampled_from([*sorted(dead_letters.OURS), dead_letters.TRUNCATED, dead_letters.REDRIVEN, "h", ""])
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=20)), max_size=12)
ORIGIN = dead_letters.origin(transform="t@1.0.0", digest="sha256:aa")
PLACE = dead_letters.provenance(ORIGIN, TopicPartition("a-b", 3), 7)


class Unprintable(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no JSON", b"no JSON"),
        ("unknown customer \ud800", b"unknown customer \\ud800"),
        ("two\nlines\x1b[2J", b"two lines\\u001b[2J"),
        ("x" * 1_024, b"x" * 1_024),
        ("x" * 1_025, b"x" * 1_021 + "…".encode()),
        ("ß" * 1_000, ("ß" * 510 + "…").encode()),
        ("\udfff" * 10_000_000, (b"\\udfff" * 171)[:1_021] + "…".encode()),
    ],
    ids=[
        "plain",
        "a lone surrogate",
        "lines and controls",
        "as long as may be",
        "one too many",
        "many bytes",
        "all of it",
    ],
)
def test_any_text_is_a_reason(text: str, expected: bytes) -> None:
    error, reason = dead_letters.failure(error="ValueError", reason=text)
    assert error == (dead_letters.ERROR, b"ValueError")
    assert reason == (dead_letters.REASON, expected)
    assert dead_letters.reason_of(ValueError(text)).encode() == expected


def test_an_error_without_a_text_has_a_reason_all_the_same() -> None:
    assert dead_letters.reason_of(Unprintable()) == "its text cannot be made: RuntimeError"


@given(HEADERS)
def test_a_failure_that_was_added_to_any_record_is_read_and_removed_again(headers: list[dead_letters.Header]) -> None:
    letter = dead_letters.failed(b"k", b"v", headers, ValueError("no"), PLACE)
    kept = [header for header in headers if header[0] != dead_letters.TRUNCATED]
    assert [each for each in dead_letters.record_headers(letter.headers) if each[0] != dead_letters.TRUNCATED] == kept
    failure = dead_letters.parse_failure(letter.headers)
    assert (failure.source, failure.offset, failure.error, failure.reason) == (
        TopicPartition("a-b", 3),
        7,
        "ValueError",
        "no",
    )
    assert (failure.transform, failure.version, failure.digest) == ("t", "1.0.0", "sha256:aa")


@given(HEADERS)
def test_any_headers_tell_of_a_failure_or_not(headers: list[dead_letters.Header]) -> None:
    failure = dead_letters.parse_failure(headers)
    assert (failure.source is None) == (failure.offset == -1)
    assert len(dead_letters.record_headers(headers)) <= len(headers)


def test_the_failure_of_a_truncated_letter_has_the_size_of_the_record() -> None:
    letter = dead_letters.failed(b"k", b"v" * 99, [], ValueError("no"), PLACE).truncated()
    assert dead_letters.parse_failure(letter.headers).truncated_bytes == 100
    assert dead_letters.record_headers(letter.headers) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"a-b-3@42", (TopicPartition("a-b", 3), 42)),
        (b"a-2147483648@1", None),
        (b"a-1@9223372036854775808", None),
        (b"a@1", None),
        (b"-1@1", None),
        (b"a-01@1", None),
        (b"\xff", None),
        (None, None),
    ],
)
def test_a_redriven_record_names_its_dead_letter(
    value: bytes | None, expected: tuple[TopicPartition, int] | None
) -> None:
    assert dead_letters.parse_redriven(value) == expected
