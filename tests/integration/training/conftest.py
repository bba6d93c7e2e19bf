from pathlib import Path
from typing import Any

import pytest

from support.eta_model import eta_model, eta_record, eta_rows
from wasmline.job_specs import TrainSpec
from wasmline.training import ModelRecord


@pytest.fixture
def spec(tmp_path: Path) -> TrainSpec:
    return TrainSpec(
        model="eta",
        topic="features",
        models=str(tmp_path / "models"),
        fields={"id": "string", "km": "double", "kind": "string", "minutes": "double"},
        features=("km", "kind"),
        categories={"kind": ("a", "b")},
        target="minutes",
        identity="id",
        where="km < 100 OR km IS NULL",
    )


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return eta_rows()


@pytest.fixture(scope="module")
def record() -> ModelRecord:
    return eta_record()


@pytest.fixture(scope="module")
def model(rows: list[dict[str, Any]], record: ModelRecord) -> bytes:
    return eta_model(rows, record)
