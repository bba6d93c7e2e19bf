"""Rows are selected and counted by the transforms that their provenance names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from wasmline.errors import TrainingError
from wasmline.training import Dataset
from wasmline.training.prepare import OFFSET, PARTITION, TRANSFORM
from wasmline.training.transform_versions import (
    MAX_COUNTED,
    MAX_MODULES,
    OTHERS,
    Rule,
    count_transforms,
    select_transforms,
    with_modules,
)

DIGEST, OTHER = "0123456789ab", "ba9876543210"

WRITTEN = (
    "",
    f"clean@1.9.0 {DIGEST}",
    f"clean@1.10.0 {DIGEST}",
    f"clean@1.10.0 {OTHER}",
    f"clean@2.0.0-rc.1 {DIGEST}",
    f"clean@newest {DIGEST}",
    f"merge@0.1.0 {DIGEST}",
)


def usable(transforms: Sequence[str]) -> pa.Table:
    """Return usable rows by these transforms, at the offsets from 0 of one partition."""
    count = len(transforms)
    return pa.table(
        {
            PARTITION: pa.array([0] * count, pa.int32()),
            OFFSET: pa.array(range(count), pa.int64()),
            TRANSFORM: pa.array(transforms, pa.string()).dictionary_encode(),
        }
    )


def over(dataset: Dataset, start: int, end: int) -> Dataset:
    return replace(dataset, offsets={"0": (start, end)})


@pytest.mark.parametrize(
    ("rule", "admitted"),
    [
        ("any", WRITTEN),
        ("newest", (WRITTEN[2], WRITTEN[3], WRITTEN[6])),
        (("clean@1.9.0", "clean@newest", "absent@1.0.0"), (WRITTEN[1], WRITTEN[5])),
        (("absent@1.0.0",), ()),
    ],
)
def test_a_rule_admits_versions(rule: Rule, admitted: Sequence[str], dataset: Dataset) -> None:
    rows, others = select_transforms(usable(WRITTEN), rule)
    assert rows[TRANSFORM].to_pylist() == list(admitted)
    assert others[TRANSFORM].to_pylist() == [each for each in WRITTEN if each not in admitted]
    assert count_transforms(rows, over(dataset, 0, 7)) == dict.fromkeys(sorted(admitted), 1)


def test_the_newest_is_a_release_if_there_is_one() -> None:
    names = [f"clean@2.0.0-rc.{number} {DIGEST}" for number in (2, 10)]
    assert select_transforms(usable(names), "newest")[0][TRANSFORM].to_pylist() == names[1:]


def test_a_dataset_names_the_transforms_in_its_ranges(dataset: Dataset) -> None:
    table = usable([WRITTEN[2], "", WRITTEN[1], WRITTEN[2], "", ""])
    assert with_modules(over(dataset, 0, 4), table, "any").modules == ("", WRITTEN[2], WRITTEN[1])
    assert with_modules(over(dataset, 2, 4), table, "any").modules == (WRITTEN[2], WRITTEN[1])
    assert (
        with_modules(over(dataset, 4, 6), table, "any").modules
        == with_modules(over(dataset, 6, 9), table, "any").modules
        == ()
    )
    assert count_transforms(table, over(dataset, 0, 3)) == {"": 1, WRITTEN[1]: 1, WRITTEN[2]: 1}


def test_any_number_of_forged_names_fits_a_result_and_is_not_recorded(dataset: Dataset) -> None:
    forged = [f"forged-{number:04}@1.0.0 {DIGEST}" for number in range(MAX_MODULES + 1)]
    table = usable([*forged, *[WRITTEN[1]] * 9])
    counts = count_transforms(table, over(dataset, 0, 2_000))
    assert len(counts) == MAX_COUNTED + 1
    assert (counts[WRITTEN[1]], counts[OTHERS]) == (9, MAX_MODULES + 2 - MAX_COUNTED)
    assert with_modules(over(dataset, 0, 2_000), table, "any").modules == ()
    with pytest.raises(TrainingError, match="names 1,002 transforms, more than the 1,000 of a dataset"):
        with_modules(over(dataset, 0, 2_000), table, "newest")
    rows, _ = select_transforms(table, ("clean@1.9.0",))
    assert with_modules(over(dataset, 0, 2_000), rows, ("clean@1.9.0",)).modules == (WRITTEN[1],)


def test_a_rule_that_admits_less_than_half_of_the_rows_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    table = usable([WRITTEN[1]] * 9 + [f"clean@999.0.0 {DIGEST}"])
    select_transforms(table, ("clean@1.9.0",))
    assert caplog.messages == []
    select_transforms(table, "newest")
    assert caplog.messages == ["transform_versions newest excludes 9 of 10 usable records"]
