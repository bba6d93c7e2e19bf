"""Observes a model, its topic and its slices, and says when to train again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from wasmline import provenance
from wasmline.clock import now_ms
from wasmline.job_specs import SliceRequest
from wasmline.offset_ranges import OffsetRanges, count_offsets, ranges_of
from wasmline.retrain_conditions import RetrainConditions
from wasmline.training.feature_drift import feature_drift
from wasmline.training.json_rows import json_objects, number, rows_from_json
from wasmline.training.live_error import LiveError, live_error
from wasmline.training.model_registry import ModelRecord, ModelRegistry
from wasmline.training.promotion_log import PromotionLog
from wasmline.training.recorded_slice import RecordedSlice
from wasmline.training.retrain_reasons import (
    ChampionFacts,
    FeatureDrift,
    RetrainReason,
    retrain_reasons,
)
from wasmline.training.run_slice import topic_offsets
from wasmline.training.slice_decision import decide_slice
from wasmline.training.slice_log import SliceLog

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig

SAMPLE_ROWS = 5_000
"""The newest records whose features, or predictions, are looked at."""

LABEL_ROWS = 50_000
"""The newest records among which labels are looked up."""

Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainEvent:
    """Why to train a model again, and up to which offsets of its topic records were seen then.

    ``slice`` is the number of the newest recorded slice, 0 for none.
    """

    model: str
    champion: str | None
    topic: str
    topic_id: str
    until: dict[str, int]
    slice: int
    reasons: tuple[RetrainReason, ...]
    observed_ms: int
    spec_version: Literal[1] = 1

    @property
    def why(self) -> str:
        """The reasons in one sentence."""
        return "; ".join(each.text for each in self.reasons)


class RetrainMonitor:
    """Compares the topic with the recorded slices and with the champion; keeps no state of its own but a cache.

    For one thread.
    """

    def __init__(self, config: KafkaConfig, conditions: RetrainConditions) -> None:
        from wasmline.kafka import Topics

        self._config = config
        self._conditions = conditions
        self._topics = Topics(config)
        self._slices = SliceLog(conditions.models)
        self._promotions = PromotionLog(conditions.models)
        self._registry = ModelRegistry(conditions.models)
        self._reported: tuple[int, int] | None = None
        self._reference: tuple[str, ModelRecord, pa.Table | None] | None = None

    def poll(self) -> RetrainEvent | None:
        """Return why to train now, None if there is no reason or one was given a moment ago.

        Raises BrokerUnavailable, TopicNotFound, RegistryUnavailable and other errors of the topic and the registry.
        """
        request = SliceRequest(run="retrain monitor")
        history = self._slices.history(self._conditions.model)
        now = now_ms()
        if self._is_quiet(history, now):
            return None
        topic = topic_offsets(self._topics, self._conditions.topic, request)
        new = decide_slice(request, history, topic).offsets
        count = count_offsets(new)
        champion = self._champion(new, now) if count >= self._conditions.min_new_records else None
        reasons = retrain_reasons(self._conditions, count, champion)
        if not reasons:
            return None
        self._reported = len(history), now
        return RetrainEvent(
            model=self._conditions.model,
            champion=champion.version if champion else None,
            topic=topic.topic,
            topic_id=topic.topic_id,
            until=dict(topic.end),
            slice=len(history),
            reasons=reasons,
            observed_ms=now,
        )

    def _is_quiet(self, history: Sequence[RecordedSlice], now: int) -> bool:
        """Whether a slice was recorded, or an event was given on these slices, a moment ago."""
        moments = [history[-1].decided_ms] if history else []
        if self._reported and self._reported[0] == len(history):
            moments.append(self._reported[1])
        return any(now - each < self._conditions.cooldown_seconds * 1000 for each in moments)

    def _champion(self, new: OffsetRanges, now: int) -> ChampionFacts | None:
        version = self._promotions.champion(self._conditions.model)
        if version is None:
            return None
        record, held_out = self._stored(version)
        age_s = now / 1000 - datetime.fromisoformat(record.created).timestamp()
        return ChampionFacts(
            version=version,
            rmse=record.metrics.rmse,
            age_s=age_s,
            drift=self._drift(record, held_out, new),
            live=self._live(record, version),
        )

    def _stored(self, version: str) -> tuple[ModelRecord, pa.Table | None]:
        """Return a version's record and its held-out rows, which never change."""
        if self._reference is None or self._reference[0] != version:
            record = self._registry.get(self._conditions.model, version).record
            held_out = self._registry.held_out(self._conditions.model, version) if record.held_out_rows else None
            self._reference = version, record, held_out
        return self._reference[1:]

    def _drift(self, record: ModelRecord, held_out: pa.Table | None, new: OffsetRanges) -> FeatureDrift | None:
        if self._conditions.max_psi is None or held_out is None:
            return None
        newest = self._read(self._conditions.topic, _newest(new, SAMPLE_ROWS))
        fields = {name: record.dataset.fields[name] for name in record.layout.features}
        rows = rows_from_json((value for value, _ in newest), fields)
        return FeatureDrift(
            psi=feature_drift(held_out, rows, record.layout), rows=rows.num_rows, reference_rows=held_out.num_rows
        )

    def _live(self, record: ModelRecord, version: str) -> LiveError | None:
        conditions, identity = self._conditions, record.dataset.identity
        if conditions.max_error_growth is None or conditions.predictions is None:
            return None
        until_ms = now_ms() - int(conditions.label_delay_seconds * 1000)
        ends = self._topics.offsets_for_time(conditions.predictions, until_ms)
        predicted = self._read(conditions.predictions, self._newest_below(conditions.predictions, ends, SAMPLE_ROWS))
        own = (value for value, model in predicted if model in (None, f"{conditions.model}@{version}"))
        predictions = _first(json_objects(own), identity, "prediction")
        labels_topic = conditions.labels or conditions.topic
        ends = self._topics.end_offsets(labels_topic)
        labelled = self._read(labels_topic, self._newest_below(labels_topic, ends, LABEL_ROWS))
        labels = _first(json_objects(value for value, _ in labelled), identity, record.target)
        return live_error(predictions, labels)

    def _newest_below(self, topic: str, ends: Mapping[int, int], count: int) -> dict[int, Range]:
        beginnings = self._topics.beginning_offsets(topic)
        return _newest({str(p): (beginnings[p], end) for p, end in ends.items() if p in beginnings}, count)

    def _read(self, topic: str, ranges: Mapping[int, Range]) -> Iterator[tuple[bytes | None, str | None]]:
        """Yield the value of each record, and the model that it is a prediction of, if it says so."""
        from wasmline.kafka import read_range

        for message in read_range(self._config, topic, ranges):
            header = dict(message.headers() or []).get(provenance.NAME)
            origin = provenance.parse(header if isinstance(header, bytes) else None)
            yield message.value(), str(origin.model) if origin and origin.model else None


def _newest(offsets: OffsetRanges, count: int) -> dict[int, Range]:
    """Return, of the last range of each partition, the newest offsets: about ``count`` together."""
    last = {partition: (start, end) for partition, start, end in ranges_of(offsets) if start < end}
    each = -(-count // max(len(last), 1))
    return {partition: (max(start, end - each), end) for partition, (start, end) in last.items()}


def _first(objects: Iterable[Mapping[str, Any]], identity: str, name: str) -> dict[str, float]:
    """Return the first number with this name of each identity."""
    found: dict[str, float] = {}
    for each in objects:
        value = number(each.get(name))
        if value is not None and isinstance(key := each.get(identity), str | int):
            found.setdefault(str(key), value)
    return found
