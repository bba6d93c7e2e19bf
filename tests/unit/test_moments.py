"""Times and ages as users write them."""

from __future__ import annotations

import pytest

from wasmline.moments import parse_moment_or_age


@pytest.mark.parametrize(
    ("text", "expected"),
    [("15m", 100_000), ("1ms", 999_999), ("0d", 1_000_000), ("1970-01-01T00:00:01Z", 1_000), ("1970-01-01", 0)],
)
def test_a_time_or_an_age_is_unix_milliseconds(text: str, expected: int) -> None:
    assert parse_moment_or_age(text, 1_000_000) == expected


@pytest.mark.parametrize("text", ["", "15", "m", "-1m", "1.5h", "yesterday", "15 m", "1w"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither a time such as"):
        parse_moment_or_age(text, 0)
