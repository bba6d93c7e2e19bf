"""A topic that is deleted and made anew while a run reads it."""

import pytest

from wasmline.errors import InvalidJob
from wasmline.job_offsets.start_offsets import TopicState
from wasmline.spark.parallel.job import ParallelJob


def test_a_topic_of_another_id_ends_the_run() -> None:
    """Once it is longer than the old one was, no offset would tell."""
    job = object.__new__(ParallelJob)
    job._topic = "orders"
    job._input = TopicState(name="orders", id="first", begins={}, ends={})
    job._refuse_made_anew("first")
    with pytest.raises(InvalidJob, match="recreated while this run read it"):
        job._refuse_made_anew("second")
