"""The headers of dead letters, for any failure."""

import pytest

from wasmline import dead_letters


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
