"""Dead letters of the key-parallel consumer."""

from __future__ import annotations

import pytest

from wasmline.consumer import ConsumedRecord, ConsumerOptions
from wasmline.consumer.health import Counters
from wasmline.consumer.runtime.dead_letter_builder import DeadLetterBuilder
from wasmline.errors import OutputRefused


@pytest.mark.parametrize(
    ("timestamp", "error", "kept"),
    [
        (1_700_000_000_000, ValueError("no JSON"), 1_700_000_000_000),
        (0, ValueError("no JSON"), 0),
        (-1, ValueError("no JSON"), None),
        (1_700_000_000_000, OutputRefused("its time is ahead"), None),
    ],
    ids=["kept", "the first", "none", "refused"],
)
def test_a_letter_has_the_time_of_its_record_unless_that_has_none_or_may_be_the_cause(
    timestamp: int, error: Exception, kept: int | None
) -> None:
    options = ConsumerOptions(topics=("in",), group_id="g", dead_letter_topic="letters")
    record = ConsumedRecord("in", 0, 7, b"key", b"value", (), timestamp)
    assert DeadLetterBuilder(options, Counters()).build(record, error).timestamp == kept
