from __future__ import annotations

from typing import Any

import pytest

from wasmline.errors import InvalidSpec, LimitExceeded
from wasmline.wasm import ResourceLimits, TransformContext


def context(**changes: Any) -> TransformContext:
    return TransformContext(**{"name": "t", "input_topic": "in", "output_topics": ("out",), **changes})


@pytest.mark.parametrize(
    "values",
    [
        {"memory_bytes": 65535},
        {"memory_bytes": 2**32 + 1},
        {"cpu_ms_per_record": 0},
        {"output_bytes_per_record": 0},
        {"log_bytes_per_batch": -1},
    ],
)
def test_limits_out_of_range_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(LimitExceeded, match=next(iter(values))):
        ResourceLimits(**values)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": ""},
        {"name": "n" * 129},
        {"output_topics": ()},
        {"output_topics": tuple(f"out{index}" for index in range(9))},
        {"env": {f"KEY{index}": "v" for index in range(129)}},
        {"env": {"K" * 129: "v"}},
        {"env": {"KEY": "v" * 2049}},
        {"env": {"KEY": ""}},
    ],
)
def test_a_deployment_over_redpandas_limits_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(LimitExceeded):
        context(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "a\nb"},
        {"output_topics": ("out", "out")},
        {"output_topics": ("in",)},
        {"env": {"A=B": "v"}},
        {"env": {"REDPANDA_INPUT_TOPIC": "v"}},
        {"env": {"KEY": "a\0b"}},
        {"clock": "sundial"},
    ],
)
def test_names_that_cannot_be_used_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        context(**changes)


def test_the_environment_names_the_topics_after_the_users_variables() -> None:
    assert context(output_topics=("a", "b"), env={"X": "1"}).environment() == {
        "X": "1",
        "REDPANDA_INPUT_TOPIC": "in",
        "REDPANDA_OUTPUT_TOPIC_0": "a",
        "REDPANDA_OUTPUT_TOPIC_1": "b",
    }
