"""Runs one training: stores a model version and compares it with the live one."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from wasmline.digests import digest_of
from wasmline.documents import encode
from wasmline.errors import NotEnoughData
from wasmline.job_specs import TrainSpec
from wasmline.registry import created_now
from wasmline.training.boosting import TreeParameters, fit, library, predict
from wasmline.training.correlations import Correlation, correlate
from wasmline.training.dataset_slice import Dataset, resolve
from wasmline.training.evaluate import Baselines, Histogram, Metrics, histogram, measure, rmse, sample
from wasmline.training.feature_encoding import FeatureLayout, Vector, layout_of, numbers
from wasmline.training.gate import ChampionErrors, Decision, GatePolicy, PairedErrors, decide
from wasmline.training.linear_baseline import LinearBaseline
from wasmline.training.model_registry import ModelRecord, ModelRegistry
from wasmline.training.prepare import Prepared, prepare, read_slice
from wasmline.training.promotion_log import PromotionLog
from wasmline.training.rollback_target import rolled_back

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wasmline.kafka import KafkaConfig

log = logging.getLogger(__name__)

PLOT_ROWS = 1_500
"""Held-out rows kept for a plot: the result is one Kafka record and must stay well below a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """Counts of the slice: ``offsets`` = excluded + duplicates + training + holdout."""

    offsets: int
    excluded: int
    duplicates: int
    training: int
    holdout: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """The result of a training: a version, its metrics and the champion's, and the gate's decision.

    ``champion`` is the version that was live, None if none was. ``sample`` has pairs of truth and prediction,
    ``residuals`` all values of truth minus prediction. Nothing is promoted yet.
    """

    model: str
    version: str
    digest: str
    size: int
    dataset: Dataset
    dataset_digest: str
    rows: RowCounts
    target: str
    columns: tuple[str, ...]
    metrics: Metrics
    champion: str | None
    champion_metrics: Metrics | None
    decision: Decision
    correlations: tuple[Correlation, ...]
    sample: list[tuple[float, float]]
    residuals: Histogram
    seconds: dict[str, float]
    run: str = ""
    spec_version: Literal[1] = 1


def run_training(spark: SparkSession, spec: TrainSpec, kafka: KafkaConfig, *, run: str = "") -> TrainResult:
    """Train on the topic's current records, store the version, and return it with the gate's decision.

    Raises NotEnoughData, TopicNotFound, BrokerUnavailable, TrainingError, RegistryUnavailable.
    """
    from wasmline.kafka import Topics

    dataset = resolve(spec, Topics(kafka))
    return train_on(read_slice(spark, dataset, kafka), dataset, spec, run=run)


def train_on(records: DataFrame, dataset: Dataset, spec: TrainSpec, *, run: str = "") -> TrainResult:
    """Like ``run_training``, with given records; columns as in ``read_slice``."""
    clock = _Clock()
    with clock.step("prepare"):
        prepared = prepare(records, dataset)
    _check_rows(prepared, spec)
    layout = layout_of(spec.features, spec.categories)
    parameters = _parameters(spec)
    truth = numbers(prepared.training[spec.target])
    matrix = layout.matrix(prepared.training)
    with clock.step("train"):
        model = fit(matrix, truth, layout.columns, parameters)
    with clock.step("evaluate"):
        baseline = LinearBaseline(matrix, truth)
        held_out = _HeldOut(prepared.holdout, dataset, layout, mean=float(np.mean(truth)), linear=baseline)
        predictions = held_out.predict(model, layout)
        metrics = held_out.metrics(predictions)
        promotions = PromotionLog(spec.models)
        champion = promotions.champion(spec.model)
        champion_metrics, errors = _measure_champion(spec, champion, held_out, predictions)
        decision = decide(metrics, GatePolicy(margin=spec.margin, seed=spec.seed), errors)
    with clock.step("publish"):
        record = ModelRecord(
            model=spec.model,
            target=spec.target,
            layout=layout,
            columns=layout.columns,
            parameters=parameters,
            dataset=dataset,
            dataset_digest=dataset.digest,
            training_rows=prepared.training.num_rows,
            metrics=metrics,
            libraries=library(),
            created=created_now(),
            run=run,
            units=spec.units,
        )
        version = ModelRegistry(spec.models).publish(record, model, held_out=prepared.holdout)
    if decision.promote and (rollback := rolled_back(promotions.history(spec.model), version.version)):
        decision = replace(
            decision,
            decision="keep",
            refusal="rolled back",
            reason=f"{version.version} is a version that decision {rollback.number} rolled back: roll back to it by "
            f"name, or train on other records. {decision.reason}",
        )
    log.info("%s@%s: %s (%s)", spec.model, version.version, decision.decision, decision.reason)
    return TrainResult(
        model=spec.model,
        version=version.version,
        digest=version.digest,
        size=version.size,
        dataset=dataset,
        dataset_digest=dataset.digest,
        rows=_counts(prepared, dataset),
        target=spec.target,
        columns=layout.columns,
        metrics=metrics,
        champion=champion,
        champion_metrics=champion_metrics,
        decision=decision,
        correlations=_correlations(prepared, spec),
        sample=sample(held_out.truth, predictions, size=PLOT_ROWS, seed=spec.seed),
        residuals=histogram(held_out.truth - predictions),
        seconds=clock.seconds,
        run=run,
    )


class _HeldOut:
    """The held-out rows for the metrics of every compared model."""

    def __init__(
        self, rows: pa.Table, dataset: Dataset, layout: FeatureLayout, *, mean: float, linear: LinearBaseline
    ) -> None:
        self.dataset = dataset
        self._rows = rows
        self.truth: Vector = numbers(rows[dataset.target])
        self._baselines = Baselines(
            mean_rmse=rmse(self.truth, np.full_like(self.truth, mean)),
            linear_rmse=rmse(self.truth, linear.predict(layout.matrix(rows))),
        )
        identities = encode(sorted(str(identity) for identity in rows[dataset.identity].to_pylist()))
        self._digest = digest_of(identities)

    def predict(self, model: bytes, layout: FeatureLayout) -> Vector:
        return predict(model, layout.matrix(self._rows), layout.columns)

    def metrics(self, predictions: Vector) -> Metrics:
        return measure(self.truth, predictions, baselines=self._baselines, holdout=self._digest)


class _Clock:
    """Seconds per step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 3)


def _measure_champion(
    spec: TrainSpec, champion: str | None, held_out: _HeldOut, challenger: Vector
) -> tuple[Metrics | None, ChampionErrors | None]:
    """Return the champion's metrics, and its errors beside those of the challenger's predictions."""
    if champion is None:
        return None, None
    stored, model = ModelRegistry(spec.models).load(spec.model, champion)
    if not _kept_from(held_out.dataset, stored.record.dataset):
        log.warning(
            "%s@%s was trained with another split: training rows of it are held out now, which improves its metrics",
            spec.model,
            champion,
        )
    predictions = held_out.predict(model, stored.record.layout)
    truth = held_out.truth
    pair = PairedErrors(challenger=(truth - challenger) ** 2, champion=(truth - predictions) ** 2)
    return held_out.metrics(predictions), ChampionErrors(held_out=pair)


def _kept_from(dataset: Dataset, trained: Dataset) -> bool:
    """Whether no row that ``dataset`` holds out was trained on in ``trained``."""
    same = (dataset.seed, dataset.identity) == (trained.seed, trained.identity)
    return same and dataset.holdout_share <= trained.holdout_share


def _parameters(spec: TrainSpec) -> TreeParameters:
    return TreeParameters(trees=spec.trees, depth=spec.depth, learning_rate=spec.learning_rate, seed=spec.seed)


def _check_rows(prepared: Prepared, spec: TrainSpec) -> None:
    rows = prepared.training.num_rows
    if rows < spec.min_rows:
        raise NotEnoughData(
            f"{spec.topic} gives {rows} usable training rows ({prepared.excluded} records do not meet the condition "
            f"{spec.where!r} or are malformed), but min_rows is {spec.min_rows}: train on a longer slice",
            rows=rows,
        )


def _counts(prepared: Prepared, dataset: Dataset) -> RowCounts:
    return RowCounts(
        offsets=dataset.offset_count,
        excluded=prepared.excluded,
        duplicates=prepared.duplicates,
        training=prepared.training.num_rows,
        holdout=prepared.holdout.num_rows,
    )


def _correlations(prepared: Prepared, spec: TrainSpec) -> tuple[Correlation, ...]:
    rows = pa.concat_tables([prepared.training, prepared.holdout])
    return correlate(rows, spec.features, spec.target, spec.categories)
