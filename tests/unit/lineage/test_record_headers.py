"""What a record's headers name as its origin: any headers, by any writer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline import dead_letters, provenance
from wasmline.lineage.explanation import RecordPosition
from wasmline.lineage.record_headers import HeaderOrigin, origin_of
from wasmline.topic_partitions import TopicPartition

OUTPUT = (provenance.NAME, b"orders 3 42 t@1.0.0 0123456789ab")
LETTER = dead_letters.provenance(
    dead_letters.origin(transform="u@2.0.0", digest="sha256:aa"), TopicPartition("letters", 1), 7
)
FAILURE = dead_letters.failure(error="GuestTrap", reason="trapped")
NAMES = st.sampled_from([provenance.NAME, *sorted(dead_letters.OURS), "h"])
VALUES = st.none() | st.binary(max_size=30) | st.sampled_from([OUTPUT[1], b"orders", b"0", b"-1", b"1" * 25])


def test_an_output_names_its_source_and_its_module() -> None:
    assert origin_of([("h", None), OUTPUT]) == HeaderOrigin(
        source=RecordPosition(topic="orders", partition=3, offset=42),
        transform=("t", "1.0.0"),
        digest="0123456789ab",
    )


def test_a_dead_letter_names_the_record_that_failed_also_if_that_was_an_output() -> None:
    origin = origin_of([OUTPUT, *FAILURE, *LETTER])
    assert origin.source == RecordPosition(topic="letters", partition=1, offset=7)
    assert (origin.transform, origin.digest) == (("u", "2.0.0"), "sha256:aa")
    assert (origin.error, origin.reason) == ("GuestTrap", "trapped")


def test_an_output_that_is_made_of_a_dead_letter_is_an_output() -> None:
    assert origin_of([*FAILURE, *LETTER, OUTPUT]).source == RecordPosition(topic="orders", partition=3, offset=42)


def test_a_redriven_record_names_its_dead_letter_unless_it_failed_again() -> None:
    redriven = (dead_letters.REDRIVEN, b"orders.dlq-1@5")
    assert origin_of([OUTPUT, redriven]) == HeaderOrigin(
        source=RecordPosition(topic="orders.dlq", partition=1, offset=5)
    )
    assert origin_of([redriven, *FAILURE, *LETTER]).source == RecordPosition(topic="letters", partition=1, offset=7)
    assert "is no dead letter" in (origin_of([(dead_letters.REDRIVEN, b"x")]).problem or "")


def test_a_dead_letter_of_a_function_names_no_module() -> None:
    origin = origin_of([*FAILURE, *dead_letters.coordinates(TopicPartition("orders", 0), 0)])
    assert origin.source == RecordPosition(topic="orders", partition=0, offset=0)
    assert origin.transform is None


def test_a_record_without_these_headers_has_no_origin() -> None:
    assert origin_of([("h", b"1"), (dead_letters.REASON, b"why")]) == HeaderOrigin()


@pytest.mark.parametrize(
    "place",
    [
        {dead_letters.SOURCE_OFFSET: b"-1"},
        {dead_letters.SOURCE_OFFSET: b"9223372036854775808"},
        {dead_letters.SOURCE_PARTITION: b"2147483648"},
        {dead_letters.SOURCE_PARTITION: None},
        {dead_letters.SOURCE_TOPIC: b"o/r"},
    ],
)
def test_coordinates_that_are_none_are_a_problem(place: dict[str, bytes | None]) -> None:
    origin = origin_of(list({**dict(LETTER), **place}.items()))
    assert origin.source is None
    assert origin.problem


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8))
def test_any_headers_give_a_source_that_a_topic_may_have_or_none(headers: list[tuple[str, bytes | None]]) -> None:
    origin = origin_of(headers)
    assert origin.source is None or origin.problem is None
    if origin.source is not None:
        assert 0 <= origin.source.partition <= provenance.MAX_PARTITION
        assert 0 <= origin.source.offset <= provenance.MAX_OFFSET
