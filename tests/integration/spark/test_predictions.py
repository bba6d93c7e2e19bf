"""Predictions in a stream: each names its feature and its model, and is what XGBoost predicts with them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from support.eta_model import eta_model, eta_record, eta_rows, held_out, matrix
from support.streams.transform_job import TransformJob, make_transform_job, until
from wasmline.control import DeploymentSpec, StatusTopic
from wasmline.kafka import produce_all
from wasmline.registry import FilesystemRegistry
from wasmline.testing.kafka import RunningKafka
from wasmline.training import ModelRegistry, publish_model
from wasmline.training.boosting import predict

FEATURES = 600
"""Features for each of the two models."""


@dataclass
class ServedModels:
    """Versions of one model, and the job that predicts with the one that is deployed."""

    job: TransformJob
    folder: Path

    def train(self, learning_rate: float) -> str:
        """Store a version of the model and return its number."""
        record = eta_record()
        record = replace(record, parameters=replace(record.parameters, learning_rate=learning_rate))
        rows = eta_rows()
        stored = ModelRegistry(str(self.folder)).publish(record, eta_model(rows, record), held_out=held_out(rows[:200]))
        return stored.version

    def deploy(self, version: str) -> DeploymentSpec:
        source, [target], letters = self.job.spec.input_topic, self.job.spec.output_topics[:1], self.letters
        published = publish_model(
            models=str(self.folder), model="eta", version=version, registry=str(self.folder), input_topic=source,
            output_topic=target, dead_letter_topic=letters, transform=self.job.spec.name,
        )  # fmt: skip
        stored, wasm = FilesystemRegistry(str(self.folder)).load(published.name, version)
        self.job.deploy(wasm, **{name: getattr(DeploymentSpec.of(stored), name) for name in ("version", "model")})
        return self.job.spec

    @property
    def letters(self) -> str:
        assert self.job.spec.dead_letter_topic is not None
        return self.job.spec.dead_letter_topic

    def scores(self, version: str, features: Iterable[bytes]) -> dict[bytes, np.float32]:
        """Return what XGBoost predicts from each feature."""
        stored, model = ModelRegistry(str(self.folder)).load("eta", version)
        rows = {feature: json.loads(feature) for feature in features}
        scores = predict(model, matrix(list(rows.values())), stored.record.columns).astype(np.float32)
        return dict(zip(rows, scores, strict=True))


@pytest.fixture
def served(kafka: RunningKafka, spark: SparkSession, tmp_path: Path) -> ServedModels:
    job = make_transform_job(kafka.config, spark, tmp_path)
    assert job.spec.dead_letter_topic is not None
    job.spec = replace(job.spec, output_topics=(*job.spec.output_topics, job.spec.dead_letter_topic))
    return ServedModels(job=job, folder=tmp_path / "registry")


def features(first: int) -> list[tuple[bytes, bytes]]:
    rows = eta_rows()
    return [
        (b"k%d" % (number % 17), json.dumps({"id": str(number), **rows[number]}).encode())
        for number in range(first, first + FEATURES)
    ]


def test_1000_random_predictions_name_the_feature_and_the_model_that_made_them(served: ServedModels) -> None:
    job, versions = served.job, [served.train(0.3), served.train(0.2)]
    first = served.deploy(versions[0])
    job.produce(features(0))
    with job.running():
        until(lambda: len(job.out()) == FEATURES)
        second = served.deploy(versions[1])
        job.produce(features(FEATURES))
        until(lambda: len(job.out()) == 2 * FEATURES)
    since = {each.partition: each.since_offset for each in StatusTopic(job.config).all() if each.job == job.job}
    ledger = job.expected_headers(lambda partition, offset: first if offset < since[partition] else second)

    origins = {headers["wasmline.provenance"]: feature for feature, headers in ledger.items()}
    scores = {f"eta@{version}".encode(): served.scores(version, ledger) for version in versions}
    for _, value, headers in random.Random(7).sample(job.out(), 1_000):
        origin = headers["wasmline.provenance"]
        prediction: dict[str, Any] = json.loads(value)
        assert prediction["id"] == json.loads(origins[origin])["id"]
        assert np.float32(prediction["prediction"]) == scores[origin.split()[5]][origins[origin]]
    models = [origin.split()[5] for origin in origins]
    assert [models.count(model) for model in scores] == [FEATURES, FEATURES]


def test_a_record_that_breaks_the_models_contract_is_a_dead_letter_with_its_reason(served: ServedModels) -> None:
    served.deploy(served.train(0.3))
    produce_all(served.job.config, served.job.spec.input_topic, [(b"k", b'{"id":"1","km":"far"}', None, None)])
    served.job.run()
    [(value, headers)] = served.job.letters()
    assert (value, headers["wasmline.reason"]) == (b'{"id":"1","km":"far"}', b"wrong type: km is not a number")
