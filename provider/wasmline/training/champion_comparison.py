"""Compares a challenger with the champion on the challenger's held-out and forward rows."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wasmline.offset_ranges import OffsetRanges, offsets_beyond, ranges_text
from wasmline.printable import bounded_line, printable
from wasmline.training.dataset_slice import Dataset
from wasmline.training.evaluate import Baselines, Metrics, holdout_digest, measure
from wasmline.training.feature_encoding import numbers
from wasmline.training.fitted_model import FittedModel
from wasmline.training.gate import ChampionErrors, Decision, GatePolicy, Mask, PairedErrors, decide
from wasmline.training.prepare import HELD_OUT, OFFSET, PARTITION
from wasmline.training.stored_rows import STAND_IN

log = logging.getLogger(__name__)

MAX_SEGMENTS = 50
"""The segments with the most rows; others are not compared, which bounds the size of a decision."""

MAX_LABEL_LETTERS = 80
"""Values that differ only after so many letters are one segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredModel:
    """A model, its metrics, and the rows they were measured on; ``forward`` is None if none were."""

    model: FittedModel
    metrics: Metrics
    held_out: pa.Table
    forward: pa.Table | None


def compare_with_champion(
    challenger: MeasuredModel, champion: FittedModel | None, policy: GatePolicy
) -> tuple[Metrics | None, Decision]:
    """Return the champion's metrics on the challenger's held-out rows, and the gate's decision.

    A model does not replace one that was trained on later records of its topic. The same models and rows give the same
    decision. Raises TrainingError if the rows lack a feature of the champion.
    """
    if champion is None:
        return None, decide(challenger.metrics, policy, None)
    if not _kept_from(challenger.model.dataset, champion.dataset):
        log.warning("the champion was trained with another split: training rows of it are held out now")
    truth = numbers(challenger.held_out[challenger.model.dataset.target])
    predictions = champion.predict(challenger.held_out)
    own = challenger.metrics
    metrics = measure(
        truth,
        predictions,
        baselines=Baselines(mean_rmse=own.mean_rmse, linear_rmse=own.linear_rmse),
        holdout=holdout_digest(challenger.held_out[challenger.model.dataset.identity]),
    )
    errors = ChampionErrors(
        held_out=PairedErrors(
            challenger=(truth - challenger.model.predict(challenger.held_out)) ** 2, champion=(truth - predictions) ** 2
        ),
        segments=segment_masks(challenger.held_out, policy.segments),
        forward=_forward_errors(challenger, champion),
    )
    decision = decide(own, policy, errors)
    if decision.promote and (later := _later_offsets(champion.dataset, challenger.model.dataset)):
        reached = bounded_line(f"{champion.dataset.topic} {ranges_text(later)}")
        decision = decision.rejected(
            "older", f"the champion was trained on later records, {reached}: to make this model live, roll back to it"
        )
    return metrics, decision


def _later_offsets(champion: Dataset, challenger: Dataset) -> OffsetRanges:
    """Return the champion's offsets after the challenger's; none if the challenger has some after the champion's."""
    if not _same_topic(champion, challenger) or offsets_beyond(challenger.offsets, champion.offsets):
        return {}
    return offsets_beyond(champion.offsets, challenger.offsets)


def segment_masks(rows: pa.Table, fields: tuple[str, ...]) -> dict[str, Mask]:
    """Return the rows with each value of each field, as ``FIELD=VALUE``, the most rows first; of MAX_SEGMENTS.

    Values are counted before rows are selected: a mask of each takes the memory of rows times values.
    """
    segments: list[tuple[int, str, npt.NDArray[np.int32], list[int]]] = []
    for name in fields:
        found = pc.dictionary_encode(rows[name], null_encoding="encode").combine_chunks()
        indices = np.asarray(found.indices)
        counts = np.bincount(indices, minlength=len(found.dictionary))
        codes: dict[str, list[int]] = {}
        for code, value in enumerate(found.dictionary.to_pylist()):
            codes.setdefault(_label(name, value), []).append(code)
        segments += ((int(counts[its].sum()), label, indices, its) for label, its in codes.items())
    largest = sorted(segments, key=lambda each: (-each[0], each[1]))[:MAX_SEGMENTS]
    return {label: np.isin(indices, its) for _, label, indices, its in largest}


def _label(field: str, value: object) -> str:
    """Return the name of a segment, printable and bounded; a missing value is no text."""
    if value is None:
        return f"{field} is null"
    return printable(f"{field}={value}"[:MAX_LABEL_LETTERS])[:MAX_LABEL_LETTERS]


def _forward_errors(challenger: MeasuredModel, champion: FittedModel) -> PairedErrors | None:
    """Return the errors of the stand-in and the champion on the forward rows.

    A champion that was trained on records of them has no forward error there: then they are those of the challenger
    and the champion on the forward rows that are held out from both.
    """
    rows, model = challenger.forward, challenger.model
    if rows is None:
        return None
    stand_in = rows[STAND_IN].to_numpy()
    if _is_any_within(rows, model.dataset, champion.dataset):
        rows = rows.filter(rows[HELD_OUT])
        stand_in = model.predict(rows)
    if rows.num_rows == 0:
        return None
    truth = numbers(rows[model.dataset.target])
    return PairedErrors(challenger=(truth - stand_in) ** 2, champion=(truth - champion.predict(rows)) ** 2)


def _is_any_within(rows: pa.Table, of: Dataset, dataset: Dataset) -> bool:
    """Return whether a row, of the topic of one dataset, is a record of the other. The rows need not be in order."""
    if not _same_topic(of, dataset):
        return False
    partitions, offsets = rows[PARTITION].to_numpy(), rows[OFFSET].to_numpy()
    return any(
        np.any((partitions == partition) & (offsets >= start) & (offsets < end))
        for partition, start, end in dataset.ranges
    )


def _same_topic(one: Dataset, other: Dataset) -> bool:
    return (one.topic, one.topic_id) == (other.topic, other.topic_id)


def _kept_from(dataset: Dataset, trained: Dataset) -> bool:
    """Whether no row that ``dataset`` holds out was trained on in ``trained``."""
    same = (dataset.seed, dataset.identity) == (trained.seed, trained.identity)
    return same and dataset.holdout_share <= trained.holdout_share
