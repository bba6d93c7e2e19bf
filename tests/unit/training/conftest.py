from pathlib import Path

import pytest

from wasmline.job_specs import TrainSpec
from wasmline.training import Dataset, FeatureLayout, Metrics, ModelRecord, TreeParameters
from wasmline.training.dataset_slice import of_slice


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
    )


@pytest.fixture
def dataset(spec: TrainSpec) -> Dataset:
    return of_slice(spec, topic_id="t1", offsets={"0": (0, 10), "1": (5, 25)})


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(rows=100, rmse=7.2, mae=5.7, r2=0.4, mean_rmse=9.4, holdout="sha256:aa")


@pytest.fixture
def record(dataset: Dataset, metrics: Metrics) -> ModelRecord:
    layout = FeatureLayout(features=("km", "kind"), categories={"kind": ("a", "b")})
    return ModelRecord(
        model="eta",
        target="minutes",
        layout=layout,
        columns=layout.columns,
        parameters=TreeParameters(trees=3, depth=2, learning_rate=0.1, seed=7),
        dataset=dataset,
        dataset_digest=dataset.digest,
        training_rows=80,
        metrics=metrics,
        libraries={"xgboost": "3"},
        created="2026-01-01T00:00:00Z",
        run="run-1",
    )
