"""Targets of a change of progress name the bounds of a topic by words."""

from __future__ import annotations

import pytest

from wasmline.control import JobOrder
from wasmline.errors import InvalidJob
from wasmline.job_offsets.progress_change import JobProgress
from wasmline.job_offsets.progress_target import ProgressTarget
from wasmline.job_offsets.resume_plan import TopicState
from wasmline.job_specs import JobSpec, StreamSpec
from wasmline.kafka import KafkaConfig

CONFIG = KafkaConfig({"bootstrap.servers": "localhost:1"})
SPEC = JobSpec(job="clean", run="run-1", storage="/s", stream=StreamSpec(transform="clean"))
FOUND = JobProgress(
    order=JobOrder(spec=SPEC, wanted="stopped"),
    topic=TopicState(name="orders", id="id", begins={0: 3, 1: 4}, ends={0: 10, 1: 20}),
    offsets={0: 5, 1: 6},
    committed={},
    claim=None,
)


@pytest.mark.parametrize(
    ("words", "offsets"), [(("start", "earliest"), {0: 3, 1: 4}), (("end", "latest"), {0: 10, 1: 20})]
)
def test_the_words_of_kafkas_tools_mean_the_start_and_the_end(words: tuple[str, str], offsets: dict[int, int]) -> None:
    for word in words:
        assert ProgressTarget.parse(word).resolve(CONFIG, FOUND) == offsets
        assert ProgressTarget.parse(word, [1]).resolve(CONFIG, FOUND) == {1: offsets[1]}


def test_another_word_is_refused() -> None:
    with pytest.raises(InvalidJob, match="'earlier' is neither start, end"):
        ProgressTarget.parse("earlier")
