"""The topics of a cluster whose records the page shows."""

from __future__ import annotations

from wasmline.control import ClusterState


def dead_letter_topics_of(state: ClusterState) -> set[str]:
    """Return the topics to which deployments and functions write dead letters."""
    from wasmline.redrive.dead_letter_topics import dead_letter_topics

    return set(dead_letter_topics(state.deployments.values(), state.orders()))


def shown_topics(state: ClusterState) -> set[str]:
    """Return the topics that deployments and functions read and write: no others are shown."""
    deployed = {topic for each in state.deployments.values() for topic in each.spec.topics}
    return deployed | state.input_topics | dead_letter_topics_of(state)
