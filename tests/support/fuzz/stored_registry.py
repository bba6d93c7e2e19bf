"""A registry with one module, one model, one decision on it and one slice of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wasmline.job_specs import SliceRequest, TrainSpec
from wasmline.registry import ArtifactMetadata, FilesystemRegistry, Version
from wasmline.training import (
    Dataset,
    Decision,
    FeatureLayout,
    Metrics,
    ModelRecord,
    ModelRegistry,
    ModelVersion,
    Promotion,
    PromotionLog,
    RecordedSlice,
    SkipResult,
    TopicOffsets,
    TreeParameters,
    slice_of_run,
)

WASM = b"\0asm\1\0\0\0"
DECLARED = {
    "input-topic": "in",
    "output-topics": ["out", "dlq"],
    "dead-letter-topic": "dlq",
    "env": {"K": "1"},
    "compression": "none",
    "language": "c",
    "memory-bytes": 2**26,
    "timeout-ms": 3000,
}
PROVENANCE = {"_type": "https://in-toto.io/Statement/v1", "subject": [{"name": "a.wasm"}]}
METRICS = Metrics(rows=100, rmse=7.2, mae=5.7, r2=0.4, mean_rmse=9.4, holdout="sha256:aa")
LAYOUT = FeatureLayout(features=("km", "kind"), categories={"kind": ("a", "b")})
DATASET = Dataset(
    topic="t",
    topic_id="",
    offsets={"0": (0, 10)},
    fields={"km": "double", "kind": "string", "minutes": "double", "id": "string"},
    where="true",
    target="minutes",
    identity="id",
    seed=7,
    holdout_share=0.2,
)
RECORD = ModelRecord(
    model="eta",
    target="minutes",
    layout=LAYOUT,
    columns=LAYOUT.columns,
    parameters=TreeParameters(trees=3, depth=2, learning_rate=0.1, seed=7),
    dataset=DATASET,
    dataset_digest=DATASET.digest,
    training_rows=80,
    metrics=METRICS,
    libraries={"xgboost": "3"},
    created="2026-01-01T00:00:00Z",
)


def publish_module(url: str) -> Version:
    metadata = ArtifactMetadata(description="Adds.", revision="abc", transform=DECLARED)
    return FilesystemRegistry(url).publish("a", "1.0.0", WASM, metadata=metadata, provenance=PROVENANCE)


def publish_model(url: str) -> ModelVersion:
    return ModelRegistry(url).publish(RECORD, b"{}")


def publish_decision(url: str) -> Promotion:
    log = PromotionLog(url)
    keep = Decision(decision="keep", reason="worse")
    return log.append("eta", "1.0.0", keep, champion=log.champion("eta"), metrics=METRICS, run="r")


def publish_slice(url: str) -> RecordedSlice | SkipResult:
    spec = TrainSpec(
        model="eta",
        topic="t",
        models=url,
        fields=DATASET.fields,
        features=("km",),
        target="minutes",
        identity="id",
    )
    request = SliceRequest(run="dag/run", until=1_767_225_600_000)
    times = {"1767225600000": {"0": 8}}
    topic = TopicOffsets(topic="t", topic_id="t1", beginning={"0": 0}, end={"0": 10}, times=times)
    return slice_of_run(spec, request, lambda: topic, lambda dataset: dataset.offset_count)


PUBLICATIONS: list[Callable[[str], Any]] = [publish_module, publish_model, publish_decision, publish_slice]
