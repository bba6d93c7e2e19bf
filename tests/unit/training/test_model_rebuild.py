"""What of a version's record stops a rebuild before Spark and Kafka are asked, and what differs after one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from wasmline.errors import TrainingError
from wasmline.training import Dataset, ModelRecord, ModelRegistry, RebuiltModel, rebuild_model


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"offsets": {}}, "has offsets, a seed or a holdout share that no training has"),
        ({"offsets": {"0": (5, 5)}}, "that no training has"),
        ({"seed": 2**63}, "that no training has"),
        ({"holdout_share": 1e300}, "that no training has"),
        ({"offsets": {"0": tuple(range(2_002))}}, "has 1,001 ranges of a partition, more than 1,000"),
        (
            {"where": "reflect('java.lang.System', 'exit')"},
            r"eta@1\.0\.0 does more than compare.* pass --trust-condition",
        ),
    ],
)
def test_a_record_that_no_training_made_is_refused(
    record: ModelRecord, dataset: Dataset, tmp_path: Any, changed: dict[str, Any], complaint: str
) -> None:
    models = ModelRegistry(str(tmp_path))
    models.publish(replace(record, dataset=replace(dataset, **changed)), b"{}")
    unused: Any = None
    with pytest.raises(TrainingError, match=complaint):
        rebuild_model(unused, unused, models=models.url, name="eta", version="1.0.0")


def test_what_differs_beside_the_bytes_is_said() -> None:
    found = RebuiltModel(
        model="eta",
        version="1.0.0",
        digest="sha256:a",
        rebuilt_digest="sha256:b",
        training_rows=80,
        rebuilt_training_rows=1_080,
        libraries={},
        rebuilt_libraries={"xgboost": "3.2.0"},
    )
    assert not found.is_same
    assert found.difference == ("1,080 training rows, and 80 are recorded; xgboost 3.2.0, and no library is recorded")
    same = replace(found, rebuilt_digest="sha256:a", rebuilt_training_rows=80, rebuilt_libraries={})
    assert same.is_same
    assert same.difference == ""
