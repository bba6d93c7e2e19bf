import itertools
import random

import pytest

from wasmline.errors import InvalidReference
from wasmline.registry import Semver
from wasmline.registry.semver import by_precedence, newest

ASCENDING = [
    "0.9.9",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0-rc.1",
    "1.0.0",
    "1.2.0",
    "1.10.0",
    "10.0.0",
]


def test_precedence_is_the_one_the_specification_gives() -> None:
    shuffled = random.Random(1).sample(ASCENDING, len(ASCENDING))
    assert by_precedence(shuffled) == ASCENDING
    for lower, higher in itertools.combinations(ASCENDING, 2):
        assert Semver.parse(lower).precedence < Semver.parse(higher).precedence


@pytest.mark.parametrize(
    "text", ["1", "1.0", "01.0.0", "1.0.0-01", "1.0.0-", "1.0.0+build", "v1.0.0", " 1.0.0", "1.0.٣", ""]
)
def test_what_is_not_a_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidReference, match="semantic version"):
        Semver.parse(text)


@pytest.mark.parametrize("text", ASCENDING)
def test_a_version_is_spelled_as_it_was_read(text: str) -> None:
    assert str(Semver.parse(text)) == text


def test_the_newest_is_the_highest_release() -> None:
    assert newest(["1.0.0", "2.0.0-rc.1", "1.1.0"]) == "1.1.0"


def test_the_newest_is_a_prerelease_only_where_there_is_nothing_else() -> None:
    assert newest(["1.0.0-rc.1", "1.0.0-rc.2"]) == "1.0.0-rc.2"
    assert newest([]) is None
