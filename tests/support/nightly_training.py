"""Trains and decides on nights of generated deliveries, with the engine's own code and neither Kafka nor Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delivery.contract import Violation
from delivery.generator import generate
from delivery.reference_transform import transform
from delivery.training_spec import train_spec
from wasmline.training import Dataset, Decision, GatePolicy, Prepared, Window
from wasmline.training.challenger import Challenger, train_challenger
from wasmline.training.champion_comparison import compare_with_champion
from wasmline.training.dataset_slice import of_slice
from wasmline.training.evaluate import rmse
from wasmline.training.feature_encoding import numbers
from wasmline.training.fitted_model import FittedModel
from wasmline.training.prepare import HELD_OUT, OFFSET, PARTITION, TIMESTAMP

SPEC = train_spec(topic="features", models="")
POLICY = GatePolicy.of(SPEC)

DAY_MS = 86_400_000

Change = Callable[[dict[str, Any], int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The challenger of a night, the decision on it, and the model that serves after it."""

    challenger: Challenger
    decision: Decision
    champion: FittedModel


def deliveries(count: int, seed: int, change: Change | None = None) -> pa.Table:
    """Return the usable rows of generated deliveries; ``change`` is given each row and the number of its day."""
    rows: dict[str, dict[str, Any]] = {}
    first_ms = None
    for source in generate(count, seed=seed):
        first_ms = first_ms or source.timestamp_ms
        value = transform(source.value)
        row = {} if isinstance(value, Violation) else json.loads(value)
        if not row or row["id"] in rows or not (1 <= row["rating"] <= 5 and 18 <= row["age"] <= 49):
            continue
        place = {PARTITION: 0, OFFSET: len(rows), TIMESTAMP: source.timestamp_ms, HELD_OUT: _is_held_out(row["id"])}
        rows[row["id"]] = row | place
        if change:
            change(rows[row["id"]], (source.timestamp_ms - first_ms) // DAY_MS)
    types = {PARTITION: pa.int32(), OFFSET: pa.int64(), TIMESTAMP: pa.int64(), HELD_OUT: pa.bool_()}
    fields = {name: pa.string() if kind == "string" else pa.float64() for name, kind in SPEC.fields.items()}
    return pa.Table.from_pylist(list(rows.values()), schema=pa.schema({**types, **fields}))


def day_ends(table: pa.Table) -> list[int]:
    """Return the offsets at which the days of a table end, without the last day."""
    times = table[TIMESTAMP].to_numpy()
    days = (times - times[0]) // DAY_MS
    return [int((days < day).sum()) for day in range(1, int(days[-1]) + 1)]


def train(table: pa.Table, ends: Sequence[int], lengths: Sequence[int] = ()) -> Challenger:
    """Return the challenger of the night after the slices that end at ``ends``, from all or the last ``lengths``."""
    newest = _dataset(ends[-2], ends[-1]) if len(ends) > 1 else None

    def rows(of: Dataset) -> Prepared:
        start, end = of.offsets["0"]
        part = table.slice(start, end - start)
        return Prepared(
            training=part.filter(pc.invert(part[HELD_OUT])).drop_columns(HELD_OUT),
            holdout=part.filter(part[HELD_OUT]).drop_columns(HELD_OUT),
            excluded=0,
            duplicates=0,
        )

    return train_challenger(_windows(ends, lengths), newest, rows, SPEC)


def nights(table: pa.Table, ends: Sequence[int], lengths: Sequence[int] = (), *, first: int = 1) -> Iterator[Night]:
    """Yield a night for each slice after the ``first`` ones, of which the first champion is made."""
    champion = train(table, ends[:first], lengths).measured.model
    for count in range(first + 1, len(ends) + 1):
        challenger = train(table, ends[:count], lengths)
        _, decision = compare_with_champion(challenger.measured, champion, POLICY)
        champion = challenger.measured.model if decision.promote else champion
        yield Night(challenger=challenger, decision=decision, champion=champion)


def error(model: FittedModel, rows: pa.Table) -> float:
    """Return the RMSE of a model on rows."""
    return rmse(numbers(rows[SPEC.target]), model.predict(rows))


def _is_held_out(identity: str) -> bool:
    place = int.from_bytes(hashlib.sha256(f"{SPEC.seed}{identity}".encode()).digest()[:4], "big")
    return place % 1000 < 1000 * SPEC.holdout_share


def _dataset(start: int, end: int) -> Dataset:
    return of_slice(SPEC, topic_id="t", offsets={"0": (start, end)})


def _windows(ends: Sequence[int], lengths: Sequence[int]) -> list[Window]:
    starts = [0, *ends[:-1]]
    whole = Window(name="all", dataset=_dataset(0, ends[-1]), before=_dataset(0, ends[-2]) if len(ends) > 1 else None)
    last = [
        Window(
            name=f"last {length}",
            dataset=_dataset(starts[-length], ends[-1]),
            before=_dataset(starts[-length - 1], ends[-2]),
        )
        for length in lengths
        if length < len(ends)
    ]
    return [whole, *last]
