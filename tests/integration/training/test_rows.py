"""Rows made from records by a real Spark, and models trained on them."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from delivery.contract import Violation
from delivery.generator import generate
from delivery.reference_transform import transform
from delivery.source_records import Source, read_file
from delivery.training_spec import VEHICLES, train_spec
from wasmline.documents import decode, encode
from wasmline.errors import NotEnoughData
from wasmline.job_specs import TrainSpec
from wasmline.provenance import parse
from wasmline.training import (
    Dataset,
    Decision,
    ModelRegistry,
    Prepared,
    PromotionLog,
    TrainResult,
    Window,
    prepare,
    promote,
    train_on,
)
from wasmline.training.dataset_slice import of_slice
from wasmline.training.prepare import OFFSET, PARTITION, PLACE, PROVENANCE, TIMESTAMP, TRANSFORM, VALUE, usable_rows

DATA = Path(__file__).parents[4] / "shared" / "data" / "food_delivery.csv"

PROMOTE = Decision(decision="promote", reason="")

Record = tuple[int, int, bytes | None]


def row(identity: str | None, km: float | None = 1.0, minutes: float | None = 5.0) -> bytes:
    return json.dumps({"id": identity, "km": km, "kind": "a", "minutes": minutes, "more": True}).encode()


def frame(spark: SparkSession, records: Iterable[Record], headers: Sequence[bytes | None] = ()) -> DataFrame:
    partitions, offsets, values = zip(*records, strict=True)
    columns = {
        PARTITION: pa.array(partitions, pa.int32()),
        OFFSET: pa.array(offsets, pa.int64()),
        TIMESTAMP: pa.array(offsets, pa.int64()),
        VALUE: pa.array(values, pa.binary()),
        PROVENANCE: pa.array(headers or [None] * len(values), pa.binary()),
    }
    return spark.createDataFrame(pa.table(columns))


def over(spec: TrainSpec, records: Iterable[Record]) -> Dataset:
    ends: dict[str, tuple[int, int]] = {}
    for partition, offset, _ in records:
        ends[str(partition)] = (0, max(offset + 1, ends.get(str(partition), (0, 0))[1]))
    return of_slice(spec, topic_id="", offsets=ends)


def prepared(spark: SparkSession, spec: TrainSpec, records: list[Record]) -> Prepared:
    return prepare(frame(spark, records), over(spec, records))


def identities(rows: Prepared) -> list[str]:
    return [*rows.training["id"].to_pylist(), *rows.holdout["id"].to_pylist()]


def test_only_whole_and_clean_records_become_rows_and_the_others_are_counted(
    spark: SparkSession, spec: TrainSpec
) -> None:
    bad = [
        None,
        b"",
        b"not json",
        b"[1]",
        b"\xff\xfe",
        row(None),
        row("x", minutes=None),
        row("x", km=1e6),
        b'{"id": "x", "km": 1, "minutes": NaN}',
        b'{"id": "x", "km": 1, "minutes": 1e999}',
        b'{"id": "x", "km": 1, "minutes": "soon"}',
        row("x", minutes=-2e38),
        row("x", km=-1e39),
        b'{"id": "x", "km": -1e999, "minutes": 5}',
    ]
    good = [row("1"), row("2", km=None), b'{"id": "3", "km": 1, "minutes": 4}']
    records: list[Record] = [(0, offset, value) for offset, value in enumerate([*bad, *good])]
    rows = prepared(spark, spec, records)
    assert sorted(identities(rows)) == ["1", "2", "3"]
    assert (rows.excluded, rows.duplicates) == (len(bad), 0)
    assert rows.training.column_names == [*spec.fields, *PLACE]


def test_of_records_with_one_identity_the_one_with_the_lowest_coordinates_counts(
    spark: SparkSession, spec: TrainSpec
) -> None:
    records: list[Record] = [
        (1, 0, row("1", 10)),
        (0, 7, row("1", 7)),
        (0, 3, row("1", 3)),
        (0, 2, row("1", 1e6)),
        (2, 0, row("2")),
    ]
    rows = prepared(spark, spec, records)
    found = dict(
        zip(identities(rows), [*rows.training["km"].to_pylist(), *rows.holdout["km"].to_pylist()], strict=True)
    )
    assert found == {"1": 3.0, "2": 1.0}
    assert rows.duplicates == 2


def test_rows_come_in_the_order_of_their_records_however_spark_divides_the_work(
    spark: SparkSession, spec: TrainSpec
) -> None:
    records: list[Record] = [(number % 3, number // 3, row(f"id-{number % 900}", number)) for number in range(1000)]
    dataset = over(spec, records)
    spec_rows = [prepare(frame(spark, records).repartition(parts), dataset) for parts in (1, 7)]
    shuffled = prepare(frame(spark, sorted(records, key=lambda record: crc32(record[2] or b""))), dataset)
    assert spec_rows[0] == spec_rows[1] == shuffled
    kept = spec_rows[0].training["km"].to_pylist()
    assert kept == sorted(kept, key=lambda number: (number % 3, number // 3))
    assert len(kept) == spec_rows[0].training.num_rows > 0


def test_a_record_held_out_once_is_held_out_from_every_later_slice(spark: SparkSession, spec: TrainSpec) -> None:
    records: list[Record] = [(0, number, row(str(number))) for number in range(2000)]
    all_of_it = prepared(spark, replace(spec, where="km < 50"), records)
    later = prepared(spark, spec, records[1000:])
    held_out = set(all_of_it.holdout["id"].to_pylist())
    assert set(later.holdout["id"].to_pylist()) == {identity for identity in held_out if int(identity) >= 1000}
    assert len(held_out) == pytest.approx(400, abs=60)


def test_another_seed_holds_out_other_records(spark: SparkSession, spec: TrainSpec) -> None:
    records: list[Record] = [(0, number, row(str(number))) for number in range(500)]
    holdouts = [prepared(spark, replace(spec, seed=seed), records).holdout["id"].to_pylist() for seed in (1, 2)]
    assert holdouts[0] != holdouts[1]


NAMED = b"raw 0 42 clean@1.2.0 0123456789ab"
HEADERS = [
    NAMED,
    NAMED + b" eta@1.3.0 c0ffee000000 0ddba11c0de5",
    b"raw 2147483647 9223372036854775807 clean@1.2.0+b 0123456789ab",
    b"r" * 249 + b" 0 0 " + b"n" * 128 + b"@" + b"1" * 128 + b" 0123456789ab",
    b"raw 2147483648 42 clean@1.2.0 0123456789ab",
    b"raw 0 9223372036854775808 clean@1.2.0 0123456789ab",
    b"raw 0 042 clean@1.2.0 0123456789ab",
    b"raw 0 42 clean 0123456789ab",
    b"raw 0 42 clean@1.2.0 0123456789AB",
    NAMED + b" eta@1.3.0 c0ffee000000",
    NAMED + b"\n",
    NAMED + b"\x00",
    b" " + NAMED,
    b"x\n" + NAMED,
    NAMED.replace(b"c", b"\xff"),
    NAMED.replace(b"c", "ä".encode()),
    b"",
    b"\xff\xfe",
    b"x" * 1_000_000,
    None,
]


def test_the_transform_of_a_record_is_what_its_provenance_header_names(spark: SparkSession, spec: TrainSpec) -> None:
    records: list[Record] = [(0, offset, row(str(offset))) for offset in range(len(HEADERS))]
    found = usable_rows(frame(spark, records, HEADERS), over(spec, records))[TRANSFORM].to_pylist()
    parsed = [parse(value) for value in HEADERS]
    assert found == [f"{each.name}@{each.version} {each.digest}" if each else "" for each in parsed]
    assert [each for each in found if each][:2] == ["clean@1.2.0 0123456789ab"] * 2


def test_too_few_rows_are_refused_saying_why(spark: SparkSession, spec: TrainSpec) -> None:
    records: list[Record] = [(0, 0, row("1")), (0, 1, b"broken")]
    with pytest.raises(NotEnoughData, match=r"1 records do not meet .* min_rows is 500"):
        train_on(frame(spark, records), over(spec, records), spec)


def features(source: Iterable[Source]) -> Iterator[Record]:
    """What the transform makes of raw records, on three partitions."""
    ends = [0, 0, 0]
    for record in source:
        value = transform(record.value)
        if not isinstance(value, Violation):
            partition = crc32(record.key or b"") % 3
            yield partition, ends[partition], value
            ends[partition] += 1


def trained(spark: SparkSession, spec: TrainSpec, records: list[Record], *, run: str = "") -> TrainResult:
    return train_on(frame(spark, records), over(spec, records), spec, run=run)


@pytest.fixture(scope="module")
def generated() -> list[Record]:
    return list(features(generate()))


def test_the_model_explains_generated_deliveries_and_the_mean_does_not(
    spark: SparkSession, generated: list[Record], tmp_path: Path
) -> None:
    result = trained(spark, train_spec(topic="f", models=str(tmp_path)), generated)
    assert result.metrics.rmse <= 7.3
    assert result.metrics.mean_rmse == pytest.approx(9.4, abs=0.2)
    assert result.decision.promote
    assert result.rows.offsets == len(generated)
    assert sum((result.rows.excluded, result.rows.duplicates, result.rows.training, result.rows.holdout)) == len(
        generated
    )
    assert result.metrics.linear_rmse == pytest.approx(7.7, abs=0.1)
    assert result.metrics.forward_rmse == pytest.approx(result.metrics.rmse, abs=0.2)
    assert len(encode(result)) < 200_000
    assert decode(TrainResult, encode(result)) == result


@pytest.mark.skipif(not DATA.exists(), reason="the real export food_delivery.csv is not beside the checkout")
@pytest.mark.parametrize("seed", [7, pytest.param(11, marks=pytest.mark.long)])
def test_the_model_reaches_the_known_floor_on_the_real_export(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    records = list(features(read_file(DATA)))
    result = trained(spark, train_spec(topic="f", models=str(tmp_path), seed=seed), records)
    assert len(records) == 45_593 - 431
    assert result.metrics.rmse <= 7.30
    assert result.metrics.mean_rmse > 9.2


def test_training_twice_gives_the_same_bytes_and_no_second_version(
    spark: SparkSession, generated: list[Record], tmp_path: Path
) -> None:
    spec = train_spec(topic="f", models=str(tmp_path / "one"))
    first = trained(spark, spec, generated, run="r1")
    again = trained(spark, spec, generated, run="r2")
    elsewhere = trained(spark, replace(spec, models=str(tmp_path / "two")), generated)
    assert first.digest == again.digest == elsewhere.digest
    assert first.version == again.version == "1.0.0"
    assert first.metrics == again.metrics


def test_a_champion_is_measured_on_the_challengers_holdout_and_the_better_one_stays(
    spark: SparkSession, generated: list[Record], tmp_path: Path
) -> None:
    spec = train_spec(topic="f", models=str(tmp_path))
    early = [record for record in generated if record[1] < 1_500]
    poor = trained(spark, replace(spec, trees=5), early, run="r1")
    assert (poor.champion, poor.decision.refusal) == (None, "linear")
    promote(spec.models, poor.model, poor.version, PROMOTE, champion=None, metrics=poor.metrics, run=poor.run)
    good = trained(spark, spec, generated, run="r2")
    assert (good.champion, good.decision.decision) == (poor.version, "promote")
    assert good.champion_metrics is not None
    assert good.champion_metrics.holdout == good.metrics.holdout
    assert good.champion_metrics.rmse > good.metrics.rmse
    assert good.decision.held_out is not None
    assert good.decision.held_out.champion_rmse == pytest.approx(good.champion_metrics.rmse)
    assert good.decision.forward is not None
    assert good.decision.forward.rows < good.metrics.rows, (
        "the champion was trained on forward rows that are not held out"
    )
    promote(
        spec.models,
        good.model,
        good.version,
        good.decision,
        champion=good.champion,
        metrics=good.metrics,
        champion_metrics=good.champion_metrics,
        run=good.run,
    )
    worse = trained(spark, replace(spec, trees=5), generated, run="r3")
    assert (worse.champion, worse.decision.promote) == (good.version, False)
    assert ModelRegistry(spec.models).versions(spec.model) == ["1.0.0", "1.1.0", "1.2.0"]


def test_a_version_that_was_rolled_back_is_not_promoted_by_training_it_again(
    spark: SparkSession, generated: list[Record], tmp_path: Path
) -> None:
    spec = train_spec(topic="f", models=str(tmp_path))
    early = [record for record in generated if record[1] < 1_500]
    champion: str | None = None
    for one in (trained(spark, replace(spec, trees=5), early), trained(spark, spec, generated)):
        promote(spec.models, one.model, one.version, PROMOTE, champion=champion, metrics=one.metrics)
        champion = one.version
    PromotionLog(spec.models).roll_back(spec.model, "1.0.0", champion="1.1.0", reason="worse on scooters")
    again = trained(spark, spec, generated)
    assert (again.version, again.champion, again.decision.refusal) == ("1.1.0", "1.0.0", "rolled back")
    assert "decision 3 rolled back" in again.decision.reason


def test_of_two_retrains_at_once_the_later_one_is_compared_anew(
    spark: SparkSession, generated: list[Record], tmp_path: Path
) -> None:
    spec = train_spec(topic="f", models=str(tmp_path))
    early = [record for record in generated if record[1] < 1_500]
    both = trained(spark, spec, early, run="r1"), trained(spark, spec, generated, run="r2")
    assert [one.champion for one in both] == [None, None]
    made = [
        promote(
            spec.models,
            one.model,
            one.version,
            one.decision,
            champion=one.champion,
            metrics=one.metrics,
            policy=one.policy,
            run=one.run,
        )
        for one in both
    ]
    assert [(each.decision, each.champion) for each in made] == [("promote", None), ("promote", "1.0.0")]
    assert made[1].held_out is not None
    assert made[1].held_out.rows == both[1].metrics.rows
    assert sorted(made[1].segments) == [f"vehicle={name}" for name in sorted(VEHICLES)]
    again = trained(spark, spec, generated, run="r3")
    assert (again.champion, again.decision.refusal) == ("1.1.0", "equal")


def test_after_a_shift_the_short_window_is_trained_on(
    spark: SparkSession, generated: list[Record], tmp_path: Path
) -> None:
    """The windows are slices of 3,000 offsets of each partition; what is after the third takes 10 minutes more."""
    spec = train_spec(topic="f", models=str(tmp_path))
    records = [(partition, offset, later(value, 10.0 * (offset >= 9_000))) for partition, offset, value in generated]

    def slices(first: int, last: int) -> Dataset:
        offsets = {str(partition): (3_000 * first, 3_000 * last) for partition in range(3)}
        return of_slice(spec, topic_id="", offsets=offsets)

    windows = [
        Window(name="all", dataset=slices(0, 5), before=slices(0, 4)),
        Window(name="last 1", dataset=slices(4, 5), before=slices(3, 4)),
    ]
    result = train_on(frame(spark, records), slices(0, 5), spec, windows=windows, newest=slices(4, 5))
    assert [(each.window, each.ratio is None) for each in result.candidates] == [("all", True), ("last 1", False)]
    assert (result.window, result.dataset) == ("last 1", slices(4, 5))
    assert result.metrics.forward_rmse == result.candidates[1].forward_rmse
    assert result.metrics.forward_rmse == pytest.approx(result.metrics.rmse, rel=0.07)
    assert result.metrics.forward_rows > 7_500
    assert result.rows.offsets == 9_000
    assert result.rows.excluded + result.rows.duplicates + result.rows.training + result.rows.holdout == 9_000
    record = ModelRegistry(spec.models).get(spec.model, result.version).record
    assert (record.window, record.dataset, record.forward_rows) == (
        "last 1",
        result.dataset,
        result.metrics.forward_rows,
    )


def later(value: bytes | None, minutes: float) -> bytes:
    row = json.loads(value or b"{}")
    return json.dumps(row | {"time_min": row["time_min"] + minutes}).encode()
