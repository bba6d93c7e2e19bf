from pathlib import Path

import pytest

from wasmline.job_specs import TrainSpec


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
