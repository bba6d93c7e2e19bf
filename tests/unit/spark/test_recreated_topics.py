"""A topic that is deleted and made anew while a run reads it."""

import pytest

from wasmline.errors import InvalidJob
from wasmline.job_offsets.resume_plan import TopicState, require_same_topic


def test_a_topic_of_another_id_ends_the_run() -> None:
    """Once it is longer than the old one was, no offset would tell."""
    topic = TopicState(name="orders", id="first", begins={}, ends={})
    require_same_topic(topic, "first")
    with pytest.raises(InvalidJob, match="recreated while this run read it"):
        require_same_topic(topic, "second")
