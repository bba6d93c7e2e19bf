"""How far a consumer has fetched, from reports in the form of librdkafka's STATISTICS.md."""

import json

from wasmline.kafka.fetch_progress import FetchProgress


def report(**positions: int) -> str:
    partitions = {number.lstrip("p"): {"next_offset": offset} for number, offset in positions.items()}
    return json.dumps({"topics": {"orders": {"partitions": partitions}}})


def test_a_consumer_makes_progress_where_its_next_offset_moves() -> None:
    progress = FetchProgress()
    assert not progress.take()
    for positions, has_moved in [
        ({"p0": 5}, True),
        ({"p0": 5}, False),
        ({"p0": 5, "p1": 0}, True),
        ({"p0": 9, "p1": 0}, True),
        ({"p0": 9, "p1": 0}, False),
    ]:
        progress.note(report(**positions))
        assert progress.take() is has_moved
        assert not progress.take()


def test_progress_is_kept_until_it_is_asked_for() -> None:
    progress = FetchProgress()
    progress.note(report(p0=5))
    progress.note(report(p0=5))
    assert progress.take()


def test_a_consumer_without_partitions_makes_none() -> None:
    progress = FetchProgress()
    progress.note(json.dumps({"topics": {}}))
    assert not progress.take()
