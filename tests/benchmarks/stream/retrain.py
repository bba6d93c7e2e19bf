"""What a retrain takes: from records to a model in the stream, and from a promotion to its predictions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rich.progress import track
from stream.bench import Bench
from stream.row import Row, spread

from delivery.contract import Violation
from delivery.generator import generate
from delivery.reference_transform import transform
from delivery.training_spec import MODEL, train_spec
from support.record_traffic import Feed, Watch
from wasmline import provenance
from wasmline.control import DeploymentSpec, JobTopic, deploy
from wasmline.job_specs import JobSpec, StreamSpec, TrainSpec
from wasmline.kafka import produce_all
from wasmline.local.process import wait_until
from wasmline.registry import FilesystemRegistry
from wasmline.spark.microbatch.job import MicrobatchJob
from wasmline.training import PublishedModel, TrainResult, promote, publish_model, run_training

ROWS = 45_600
RATE = 200
"""Features a second while a stream runs."""

TIMEOUT_S = 90


@dataclass
class Predictions:
    """When the first prediction of each model was visible, in Unix seconds."""

    first: dict[str, float] = field(default_factory=dict)

    def add(self, message: Any, now: float) -> None:
        origin = provenance.parse(dict(message.headers() or []).get(provenance.NAME))
        self.first.setdefault(str(origin.model) if origin else "", now)

    def wait(self, model: str) -> float:
        if not wait_until(lambda: model in self.first, TIMEOUT_S):
            raise SystemExit(f"no prediction of {model} came")
        return self.first[model]


@dataclass(frozen=True, kw_only=True)
class Retraining:
    """Topics, registries and the stream of one model."""

    bench: Bench
    spec: TrainSpec
    predictions: str
    letters: str

    @property
    def registry(self) -> str:
        return str(self.bench.folder / "modules")

    def train(self, **changes: Any) -> TrainResult:
        return run_training(self.bench.spark, replace(self.spec, **changes), self.bench.config)

    def promote(self, trained: TrainResult) -> None:
        promote(
            self.spec.models,
            trained.model,
            trained.version,
            replace(trained.decision, decision="promote"),
            champion=trained.champion,
            metrics=trained.metrics,
            champion_metrics=trained.champion_metrics,
        )

    def serve(self, trained: TrainResult) -> PublishedModel:
        """Compile and prove a model, publish and deploy it."""
        published = publish_model(
            models=self.spec.models,
            model=trained.model,
            version=trained.version,
            registry=self.registry,
            input_topic=self.spec.topic,
            output_topic=self.predictions,
            dead_letter_topic=self.letters,
        )
        version, wasm = FilesystemRegistry(self.registry).load(published.name, published.version)
        deploy(self.bench.config, DeploymentSpec.of(version), wasm)
        return published

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Run the model's deployment in micro-batches."""
        stream = StreamSpec(transform=self.spec.model, trigger_interval="500 milliseconds")
        order = JobSpec(job=f"predict-{uuid.uuid4().hex[:6]}", run="r1", storage=str(self.bench.folder), stream=stream)
        JobTopic(self.bench.config).submit(order)
        job = MicrobatchJob(self.bench.spark, self.bench.config, order, stream)
        with ThreadPoolExecutor(1) as thread:
            outcome = thread.submit(job.run)
            try:
                yield
            finally:
                JobTopic(self.bench.config).stop(order.job, order.run)
                outcome.result(TIMEOUT_S)


def retrain(bench: Bench) -> Iterable[Row]:
    """Train and serve a first model, and then others beside its running stream."""
    features = [
        (each.key or b"", value) for each in generate(ROWS) if not isinstance(value := transform(each.value), Violation)
    ]
    source, predictions, letters = bench.topics("features", "predictions", "letters")
    produce_all(bench.config, source, ((key, value, None, None) for key, value in features))
    models = str(bench.folder / "models")
    served = Retraining(
        bench=bench, spec=train_spec(topic=source, models=models), predictions=predictions, letters=letters
    )
    seen, first = Predictions(), time.time()
    trained = served.train(trees=100, depth=6)
    was_trained = time.time()
    served.promote(trained)
    published = served.serve(trained)
    was_deployed = time.time()
    with Watch(bench.config, [predictions], seen.add), served.stream():
        live = seen.wait(f"{MODEL}@{published.version}")
        swaps = []
        with Feed(bench.config, source, RATE, lambda number: features[number % len(features)]):
            for number in track(range(bench.times(5, 2)), "another model"):
                other = served.train(trees=100, depth=6, learning_rate=0.11 + number / 100)
                promoted = time.time()
                served.promote(other)
                served.serve(other)
                swaps.append(seen.wait(f"{MODEL}@{other.version}") - promoted)
    yield Row(
        what="records to a live, proven model",
        figure=live - first,
        unit="s",
        goal=60,
        at_most=True,
        detail=f"{len(features):,} records; trained after {was_trained - first:.1f} s, compiled, proven, published and "
        f"deployed after {was_deployed - first:.1f} s (100 trees of depth 6)",
    )
    yield Row(
        what="promotion to the new model's first prediction",
        figure=max(swaps),
        unit="s",
        goal=10,
        at_most=True,
        detail=f"{spread(swaps)} s, the longest; {RATE} features a second",
    )
