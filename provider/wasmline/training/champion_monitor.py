"""Measures a live model: the drift of its features, its live error and its age."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from wasmline.errors import WasmlineError
from wasmline.offset_ranges import OffsetRanges
from wasmline.repeated_errors import RepeatedErrors
from wasmline.retrain_conditions import RetrainConditions
from wasmline.training.feature_drift import feature_drift
from wasmline.training.json_rows import rows_from_json
from wasmline.training.live_error import LiveError, live_error
from wasmline.training.model_registry import ModelRecord, ModelRegistry
from wasmline.training.promotion_log import PromotionLog
from wasmline.training.retrain_reasons import ChampionFacts, FeatureDrift
from wasmline.training.retrain_samples import first_numbers, newest_values

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

log = logging.getLogger(__name__)

T = TypeVar("T")

SAMPLE_ROWS = 5_000
"""The newest records whose features, or predictions, are looked at."""

LABEL_ROWS = 50_000
"""The newest records among which labels are looked up."""


class ChampionMonitor:
    """Measures the champion by the conditions that are set.

    What cannot be measured is None, and is logged once for as long as the problem is the same: it does not hold up the
    other conditions. For one thread.
    """

    def __init__(self, config: KafkaConfig, conditions: RetrainConditions) -> None:
        from wasmline.kafka import Topics

        registry, name = ModelRegistry(conditions.models), conditions.model
        self._config = config
        self._conditions = conditions
        self._topics = Topics(config)
        self._promotions = PromotionLog(conditions.models)
        # A version never changes.
        self._record = lru_cache(maxsize=1)(lambda version: registry.get(name, version).record)
        self._held_out = lru_cache(maxsize=1)(lambda version: registry.held_out(name, version))
        self._errors = RepeatedErrors()

    def facts(self, new: OffsetRanges | None, *, trained_ms: int, now: int) -> ChampionFacts | None:
        """Return what is known of the champion beside ``new`` records; None without one.

        Without ``new`` records, topics are not read, and drift and live error are not measured. ``trained_ms`` is when
        the newest slice was recorded.
        """
        return self._attempt("champion", lambda: self._facts(new, trained_ms, now))

    def _facts(self, new: OffsetRanges | None, trained_ms: int, now: int) -> ChampionFacts | None:
        version = self._promotions.champion(self._conditions.model)
        if version is None:
            return None
        record = self._record(version)
        metrics = record.metrics
        facts = ChampionFacts(
            version=version,
            expected_rmse=metrics.rmse if metrics.forward_rmse is None else metrics.forward_rmse,
            age_s=(now - max(record.created_ms, trained_ms)) / 1000,
        )
        if new is None:
            return facts
        return replace(
            facts,
            drift=self._attempt("drift", lambda: self._drift(record, version, new)),
            live=self._attempt("live error", lambda: self._live(record, version, now)),
        )

    def _drift(self, record: ModelRecord, version: str, new: OffsetRanges) -> FeatureDrift | None:
        if self._conditions.max_psi is None or not record.held_out_rows:
            return None
        held_out = self._held_out(version)
        fields = {name: record.dataset.fields[name] for name in record.layout.features}
        rows = rows_from_json(newest_values(self._config, self._conditions.topic, new, SAMPLE_ROWS), fields)
        return FeatureDrift(
            psi=feature_drift(held_out, rows, record.layout), rows=rows.num_rows, reference_rows=held_out.num_rows
        )

    def _live(self, record: ModelRecord, version: str, now: int) -> LiveError | None:
        conditions, identity = self._conditions, record.dataset.identity
        if conditions.max_error_growth is None or conditions.predictions is None:
            return None
        until_ms = now - int(conditions.label_delay_seconds * 1000)
        old_enough = self._topics.offsets_for_time(conditions.predictions, until_ms)
        predicted = self._newest(conditions.predictions, old_enough, SAMPLE_ROWS, f"{conditions.model}@{version}")
        predictions = first_numbers(predicted, identity, "prediction")
        topic = conditions.labels or conditions.topic
        labels = first_numbers(
            self._newest(topic, self._topics.end_offsets(topic), LABEL_ROWS), identity, record.target
        )
        return live_error(predictions, labels)

    def _newest(
        self, topic: str, ends: Mapping[int, int], count: int, model: str | None = None
    ) -> Iterator[bytes | None]:
        beginnings = self._topics.beginning_offsets(topic)
        offsets = {str(p): (beginnings[p], end) for p, end in ends.items() if p in beginnings}
        return newest_values(self._config, topic, offsets, count, model=model)

    def _attempt(self, what: str, measure: Callable[[], T]) -> T | None:
        try:
            found = measure()
        except (WasmlineError, ValueError) as error:
            if told := self._errors.changed(what, error):
                log.warning("%s: the %s cannot be measured: %s", self._conditions.model, what, told)
            return None
        self._errors.solved(what)
        return found
