"""Dead letters are counted in a bounded number of groups."""

from __future__ import annotations

from wasmline.control import RedriveState
from wasmline.dead_letters import OTHER, coordinates, failure, origin, parse_failure
from wasmline.kafka import TopicInfo
from wasmline.redrive import StoredDeadLetter, count_dead_letters
from wasmline.redrive.dead_letter_counts import MAX_GROUPS
from wasmline.topic_partitions import TopicPartition

STATE = RedriveState(
    topic=TopicInfo(name="orders.dlq", id="id", partitions=1, replication=1), redrives={}, blocks={(0, 0): (1, 2)}
)


def letter(offset: int, source: str, reason: str = "no") -> StoredDeadLetter:
    headers = [
        *failure(error="GuestTrap", reason=reason),
        *origin(transform="t@1.0.0", digest="d"),
        *coordinates(TopicPartition(source, 0), 0),
    ]
    place = TopicPartition("orders.dlq", 0)
    return StoredDeadLetter(place, offset, offset, 10 - offset, None, b"v", headers, parse_failure(headers))


def test_groups_have_their_counts_and_times() -> None:
    one, two = count_dead_letters([letter(0, "a"), letter(1, "b"), letter(2, "b")], STATE)
    assert (one.source_topic, one.dead_letters, one.pending) == ("a", 1, 1)
    assert (two.source_topic, two.dead_letters, two.pending, two.first_ms, two.last_ms) == ("b", 2, 1, 8, 9)
    assert (two.transform, two.error) == ("t@1.0.0", "GuestTrap")


def test_a_group_has_the_position_and_the_reason_of_its_last_dead_letter_by_time() -> None:
    [found] = count_dead_letters([letter(4, "a", "new\n\x1b[31m" + "x" * 5_000), letter(5, "a", "old")], STATE)
    assert (found.last_ms, found.last_position) == (6, "orders.dlq-0@4")
    assert found.last_reason.startswith("new \\u001b[31mxxx")
    assert len(found.last_reason) < 1_100


def test_all_groups_beyond_the_maximum_are_one() -> None:
    counts = count_dead_letters((letter(n, f"source-{n}") for n in range(MAX_GROUPS + 5)), STATE)
    assert len(counts) == MAX_GROUPS + 1
    assert [each.dead_letters for each in counts if each.error == OTHER] == [5]
