"""Runs one training: stores a model version and compares it with the live one."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from wasmline.job_specs import TrainSpec
from wasmline.registry import created_now
from wasmline.training.boosting import library
from wasmline.training.challenger import train_challenger
from wasmline.training.correlations import Correlation, correlate
from wasmline.training.dataset_slice import Dataset
from wasmline.training.evaluate import Histogram, Metrics, histogram, sample
from wasmline.training.feature_encoding import numbers
from wasmline.training.fitted_model import tree_parameters
from wasmline.training.gate import Decision, GatePolicy
from wasmline.training.model_decision import decide_on
from wasmline.training.model_registry import GATE_SPEC_VERSION, ModelRecord, ModelRegistry
from wasmline.training.prepare import Prepared, prepare_rows, rows_of, usable_rows
from wasmline.training.recorded_slice import RecordedSlice
from wasmline.training.transform_versions import count_transforms, select_transforms, with_modules
from wasmline.training.window_choice import Candidate, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

PLOT_ROWS = 1_500
"""Held-out rows kept for a plot: the result is one Kafka record and must stay well below a megabyte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """Counts of the dataset: ``offsets`` = excluded + duplicates + training + holdout.

    ``transforms`` counts the usable records by the transform that wrote them, ``name@version digest``, and
    ``excluded_transforms`` those that were excluded because of it; "" has records without provenance.
    """

    offsets: int
    excluded: int
    duplicates: int
    training: int
    holdout: int
    transforms: dict[str, int] = field(default_factory=dict)
    excluded_transforms: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """The result of a training: a version, its metrics and the champion's, and the gate's decision.

    ``champion`` is the version that was live, None if none was. ``dataset`` is that of the chosen ``window`` among the
    ``candidates``. ``sample`` has pairs of truth and prediction, ``residuals`` all values of truth minus prediction.
    Nothing is promoted yet; ``policy`` is to decide anew with, if another champion is live by then. ``slice`` is that
    of the run, and has ``new_rows`` usable rows; None for a training on other records. ``warnings`` are about records
    that are in no slice, or not kept.
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
    window: str = ""
    candidates: tuple[Candidate, ...] = ()
    policy: GatePolicy = field(default_factory=GatePolicy)
    slice: RecordedSlice | None = None
    new_rows: int | None = None
    warnings: tuple[str, ...] = ()
    spec_version: Literal[1] = 1


def train_on(
    records: DataFrame,
    dataset: Dataset,
    spec: TrainSpec,
    *,
    run: str = "",
    windows: Sequence[Window] = (),
    newest: Dataset | None = None,
) -> TrainResult:
    """Train on given records, columns as in ``read_slice``, store the version and decide on it.

    ``windows``, from the longest to the shortest, are the candidates; by default ``dataset`` is the only one.
    ``newest`` is the newest slice.
    """
    clock = _Clock()
    policy = GatePolicy.of(spec)
    with clock.step("train"):
        usable, others = select_transforms(usable_rows(records, dataset), spec.transform_versions)
        windows = windows or [Window(name="all", dataset=dataset)]
        candidates = [
            replace(each, dataset=with_modules(each.dataset, usable, spec.transform_versions)) for each in windows
        ]
        challenger = train_challenger(candidates, newest, partial(prepare_rows, usable), spec)
    model, metrics, prepared = challenger.measured.model, challenger.measured.metrics, challenger.prepared
    with clock.step("publish"):
        record = ModelRecord(
            model=spec.model,
            target=spec.target,
            layout=model.layout,
            columns=model.layout.columns,
            parameters=tree_parameters(spec),
            dataset=model.dataset,
            dataset_digest=model.dataset.digest,
            training_rows=prepared.training.num_rows,
            metrics=metrics,
            libraries=library(),
            created=created_now(),
            run=run,
            units=spec.units,
            window=challenger.window,
            spec_version=GATE_SPEC_VERSION,
        )
        version = ModelRegistry(spec.models).publish(
            record, model.data, held_out=prepared.holdout, forward=challenger.measured.forward
        )
    with clock.step("compare"):
        decided = decide_on(challenger.measured, version.version, models=spec.models, name=spec.model, policy=policy)
    log.info("%s@%s: %s (%s)", spec.model, version.version, decided.decision.decision, decided.decision.reason)
    truth = numbers(prepared.holdout[spec.target])
    return TrainResult(
        model=spec.model,
        version=version.version,
        digest=version.digest,
        size=version.size,
        dataset=model.dataset,
        dataset_digest=model.dataset.digest,
        rows=_counts(prepared, model.dataset, usable, others),
        target=spec.target,
        columns=model.layout.columns,
        metrics=metrics,
        champion=decided.champion,
        champion_metrics=decided.champion_metrics,
        decision=decided.decision,
        correlations=_correlations(prepared, spec),
        sample=sample(truth, challenger.predictions, size=PLOT_ROWS, seed=spec.seed),
        residuals=histogram(truth - challenger.predictions),
        seconds=clock.seconds,
        run=run,
        window=challenger.window,
        candidates=challenger.candidates,
        policy=policy,
        new_rows=None if newest is None else rows_of(usable, newest).num_rows,
    )


class _Clock:
    """Seconds per step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 3)


def _counts(prepared: Prepared, dataset: Dataset, usable: pa.Table, others: pa.Table) -> RowCounts:
    return RowCounts(
        offsets=dataset.offset_count,
        excluded=prepared.excluded,
        duplicates=prepared.duplicates,
        training=prepared.training.num_rows,
        holdout=prepared.holdout.num_rows,
        transforms=count_transforms(usable, dataset),
        excluded_transforms=count_transforms(others, dataset),
    )


def _correlations(prepared: Prepared, spec: TrainSpec) -> tuple[Correlation, ...]:
    rows = pa.concat_tables([prepared.training, prepared.holdout])
    return correlate(rows, spec.features, spec.target, spec.categories)
