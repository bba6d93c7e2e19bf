"""Slices whose records are about to be removed are warned of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline.offset_ranges import OffsetRanges
from wasmline.training.retention import HOUR_MS, Retention, removal_warnings

NOW_MS = 1_767_225_600_000
DAY_MS = 24 * HOUR_MS

SLICES: dict[str, OffsetRanges] = {"slice 1": {"0": (0, 10), "1": (0, 10)}, "slice 2": {"0": (10, 20)}}


def first_offsets(ms: int) -> dict[int, int]:
    """Return the first offsets of a time in a topic with a record each hour in both partitions, the last one now."""
    return dict.fromkeys((0, 1), sum(NOW_MS - HOUR_MS * age < ms for age in range(20)))


def warnings(retention_ms: int, *, size: int = -1, policy: str = "delete") -> list[str]:
    settings = {"retention.ms": str(retention_ms), "retention.bytes": str(size), "cleanup.policy": policy}
    return list(removal_warnings("features", settings, SLICES, first_offsets, now_ms=NOW_MS))


def test_each_slice_with_records_that_expire_within_a_day_is_named_with_their_number() -> None:
    aged_13_and_more = DAY_MS + 13 * HOUR_MS - 1
    [warning] = warnings(aged_13_and_more)
    assert warning.startswith("features: 14 offsets of slice 1 expire within 24 hours (retention.ms is 133199999)")
    both = warnings(DAY_MS)
    assert [each.split(" expire")[0] for each in both] == [
        "features: 20 offsets of slice 1",
        "features: 9 offsets of slice 2",
    ]


def test_a_tenth_of_a_long_retention_is_the_notice() -> None:
    assert warnings(20 * DAY_MS) == []
    retention = Retention(retention_ms=20 * DAY_MS, retention_bytes=-1, cleanup_policy="delete")
    assert retention.notice_ms == 2 * DAY_MS
    assert retention.expires_before_ms(NOW_MS) == NOW_MS - 18 * DAY_MS


def test_a_retention_shorter_than_the_notice_warns_of_every_slice() -> None:
    assert [each.split(" expire")[0] for each in warnings(HOUR_MS)] == [
        "features: 20 offsets of slice 1",
        "features: 10 offsets of slice 2",
    ]


@pytest.mark.parametrize(
    ("retention_ms", "size", "policy", "told"),
    [
        (-1, -1, "delete", []),
        (0, -1, "compact", ["compacted"]),
        (-1, 4_096, "delete", ["4,096 bytes"]),
        (-1, 4_096, "compact", ["compacted"]),
        (-1, 4_096, "compact,delete", ["4,096 bytes", "compacted"]),
        (DAY_MS, 4_096, "delete", ["slice 1", "slice 2", "4,096 bytes"]),
    ],
)
def test_what_cannot_be_foretold_is_said(retention_ms: int, size: int, policy: str, told: list[str]) -> None:
    found = warnings(retention_ms, size=size, policy=policy)
    assert len(found) == len(told)
    for warning, fact in zip(found, told, strict=True):
        assert fact in warning


def test_a_topic_whose_settings_are_hidden_is_named() -> None:
    [warning] = removal_warnings("features", None, SLICES, first_offsets, now_ms=NOW_MS)
    assert "may not read its settings" in warning


@given(st.integers(0, 2**62), st.integers(0, 2**41))
def test_any_retention_has_a_time_to_ask_for(retention_ms: int, now_ms: int) -> None:
    settings = {"retention.ms": str(retention_ms), "retention.bytes": "-1", "cleanup.policy": "delete"}
    asked: list[int] = []

    def offsets_for_time(ms: int) -> dict[int, int]:
        asked.append(ms)
        return {0: 5}

    [warning] = removal_warnings("features", settings, {"slice 1": {"0": (0, 9)}}, offsets_for_time, now_ms=now_ms)
    assert "5 offsets of slice 1" in warning
    assert min(asked) >= 0
