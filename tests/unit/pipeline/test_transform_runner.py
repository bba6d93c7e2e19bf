"""A deployment as a function: what goes where, with which headers, and what is counted."""

import base64
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from wasmline import dead_letters
from wasmline.control import Deployment, DeploymentSpec
from wasmline.errors import GuestTrap, TooManyFailures
from wasmline.model_reference import ModelReference
from wasmline.pipeline import BatchStats, FailureWindow, TransformRunner
from wasmline.pipeline.record_sizes import batch_bytes
from wasmline.pipeline.transform_runner import MAX_BATCH_ROWS
from wasmline.record_batches import HEADERS, OUTPUT_SCHEMA, RECORD_SCHEMA
from wasmline.testing import guests
from wasmline.wasm import HostLimits, LogLine, RecordFailure, TransformResult, TransformRuntime

DIGEST = "sha256:" + "a" * 64
SPEC = DeploymentSpec(
    name="t", version="1.0.0", digest=DIGEST, input_topic="in", output_topics=("out", "dlq"), dead_letter_topic="dlq"
)


class Scripted:
    """An instance that copies records and logs them, rejects values that are ``reject`` and fails on ``fail``."""

    def parts(self, batch: pa.RecordBatch) -> Iterator[TransformResult]:
        outputs, failures = [], []
        for row, record in enumerate(batch.to_pylist()):
            if record["value"] == b"fail":
                place = {name: record[name] for name in ("partition", "offset")}
                failures.append(RecordFailure(row=row, error=GuestTrap("guest trapped", code="UNREACHABLE", **place)))
                continue
            headers = list(record["headers"] or [])
            output = 0
            if record["value"] == b"reject":
                headers.append({"key": dead_letters.REASON, "value": b"bad value: reject"})
                output = 1
            outputs.append(
                {"row": row, "output": output, "key": record["key"], "value": record["value"], "headers": headers}
            )
        yield TransformResult(
            rows=batch.num_rows,
            outputs=pa.RecordBatch.from_pylist(outputs, schema=OUTPUT_SCHEMA),
            failures=tuple(failures),
            logs=tuple(LogLine(row=each["row"], level="WARN", text=each["value"].decode()) for each in outputs),
        )


Header = dict[str, Any]


def batch(*values: bytes, first: int = 100, given: Sequence[Header] = ({"key": "h", "value": b"1"},)) -> pa.RecordBatch:
    rows = [
        {
            "key": b"k", "value": value, "headers": given,
            "timestamp": 0, "partition": 2, "offset": first + index,
        }
        for index, value in enumerate(values)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def run(
    *values: bytes, spec: DeploymentSpec = SPEC, given: Sequence[Header] = ({"key": "h", "value": b"1"},), **limits: int
) -> tuple[list[dict], BatchStats]:  # type: ignore[type-arg]
    tally = BatchStats()
    deployment = Deployment(spec=spec, generation=1, state="running", updated_ms=0)
    pipeline = TransformRunner(deployment, Scripted(), tally, limits)  # type: ignore[arg-type]
    return [record for part in pipeline.run(batch(*values, given=given)) for record in part.to_pylist()], tally


def headers(record: dict) -> dict:  # type: ignore[type-arg]
    return {header["key"]: header["value"] for header in record["headers"]}


def test_outputs_keep_their_order_and_their_headers() -> None:
    out, tally = run(b"a", b"b")
    assert [(record["topic"], record["value"]) for record in out] == [("out", b"a"), ("out", b"b")]
    assert headers(out[0]) == {"h": b"1", "wasmline.provenance": b"in 2 100 t@1.0.0 aaaaaaaaaaaa"}
    assert headers(out[1]) == {"h": b"1", "wasmline.provenance": b"in 2 101 t@1.0.0 aaaaaaaaaaaa"}
    assert tally.records_in == tally.records_out == {2: 2}


def test_a_log_line_has_its_level_and_lost_its_newline() -> None:
    _, tally = run(b"one", b"two\n", b"three\nfour\n\n", b"\n", b"")
    assert tally.logs == ["WARN one", "WARN two", "WARN three\nfour\n", "WARN ", "WARN "]


def test_a_deployment_without_provenance_adds_no_header() -> None:
    out, _ = run(b"a", b"reject", spec=replace(SPEC, provenance=False))
    assert headers(out[0]) == {"h": b"1"}
    assert "wasmline.provenance" not in headers(out[1])


def test_the_provenance_of_a_prediction_names_its_model() -> None:
    model = ModelReference(name="eta", version="1.3.0", digest="sha256:" + "b" * 64, dataset="sha256:" + "c" * 64)
    out, _ = run(b"a", spec=replace(SPEC, model=model))
    expected = b"in 2 100 t@1.0.0 aaaaaaaaaaaa eta@1.3.0 bbbbbbbbbbbb cccccccccccc"
    assert headers(out[0])["wasmline.provenance"] == expected


@pytest.mark.parametrize("provenance", [True, False])
def test_a_provenance_header_that_a_guest_writes_never_leaves(provenance: bool) -> None:
    given: list[Header] = [{"key": "wasmline.provenance", "value": b"forged"}, {"key": "h", "value": None}] * 2
    out, _ = run(b"a", b"reject", b"fail", given=given, spec=replace(SPEC, provenance=provenance))
    ours = [{"key": "wasmline.provenance", "value": b"in 2 100 t@1.0.0 aaaaaaaaaaaa"}]
    assert out[0]["headers"] == [{"key": "h", "value": None}] * 2 + (ours if provenance else [])
    assert "wasmline.provenance" not in headers(out[1])
    assert out[2]["headers"][:4] == given, "a dead letter of the host is the record as it came"


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_an_output_that_fits_only_without_its_provenance_is_written_without(compression: str) -> None:
    value = base64.b64encode(random.Random(0).randbytes(1_000))
    bare = batch_bytes(b"k", value, [("h", b"1")])
    for limit, expected in ((bare, {"h"}), (bare + 200, {"h", "wasmline.provenance"})):
        out, tally = run(b"a", value, spec=replace(SPEC, compression=compression), out=limit)
        assert [record["value"] for record in out] == [b"a", value]
        assert headers(out[1]).keys() == expected
        assert headers(out[0]).keys() == {"h", "wasmline.provenance"}
        assert tally.failures == 0


def test_a_rejected_record_gains_its_source_and_its_module() -> None:
    out, tally = run(b"a", b"reject")
    assert out[1]["topic"] == "dlq"
    assert headers(out[1]) == {
        "h": b"1",
        dead_letters.REASON: b"bad value: reject",
        dead_letters.ERROR: b"Rejected",
        dead_letters.TRANSFORM: b"t@1.0.0",
        dead_letters.MODULE: DIGEST.encode(),
        dead_letters.SOURCE_TOPIC: b"in",
        dead_letters.SOURCE_PARTITION: b"2",
        dead_letters.SOURCE_OFFSET: b"101",
    }
    assert tally.reasons() == {"Rejected: bad value": 1}
    assert tally.records_out == {2: 1}


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_record_with_an_output_that_its_topic_does_not_take_is_a_dead_letter(compression: str) -> None:
    spec = replace(SPEC, compression=compression)
    large = base64.b64encode(random.Random(0).randbytes(1_000))
    out, tally = run(b"a", large, b"x" * 9_000, spec=spec, out=1_000)
    fits = [] if compression == "none" else [b"x" * 9_000]
    assert [record["value"] for record in out if record["topic"] == "out"] == [b"a", *fits]
    letters = [record for record in out if record["topic"] == "dlq"]
    assert [letter["value"] for letter in letters] == [large, *([] if fits else [b"x" * 9_000])]
    assert headers(letters[0])[dead_letters.ERROR] == b"RecordTooLarge"
    assert b"out allows 1000" in headers(letters[0])[dead_letters.REASON]
    assert headers(letters[0])[dead_letters.SOURCE_OFFSET] == b"101"
    assert tally.failures == len(letters)


@pytest.mark.parametrize("value", [b"fail", b"reject"])
def test_a_letter_that_its_topic_does_not_take_is_cut_and_says_so(value: bytes) -> None:
    (letter,) = (record for record in run(value, dlq=200)[0] if record["topic"] == "dlq")
    assert (letter["key"], letter["value"]) == (b"k", None)
    assert headers(letter)[dead_letters.TRUNCATED] == str(1 + len(value)).encode()
    assert headers(letter)[dead_letters.SOURCE_OFFSET] == b"100"
    assert "h" not in headers(letter)


def test_a_failed_record_goes_to_the_dead_letters_as_it_came() -> None:
    out, tally = run(b"fail", b"a")
    letter = next(record for record in out if record["topic"] == "dlq")
    assert (letter["key"], letter["value"]) == (b"k", b"fail")
    assert headers(letter)[dead_letters.ERROR] == b"GuestTrap"
    assert headers(letter)[dead_letters.REASON] == b"guest trapped"
    assert headers(letter)[dead_letters.SOURCE_OFFSET] == b"100"
    assert tally.reasons() == {"GuestTrap": 1}


def test_both_kinds_of_dead_letters_keep_the_input_order() -> None:
    out, _ = run(b"reject", b"fail", b"reject")
    assert [headers(record)[dead_letters.SOURCE_OFFSET] for record in out] == [b"100", b"101", b"102"]


def test_without_a_dead_letter_topic_a_failure_is_raised_and_says_where() -> None:
    spec = DeploymentSpec(name="t", version="1.0.0", digest=DIGEST, input_topic="in", output_topics=("out",))
    with pytest.raises(GuestTrap, match=r"^in, partition 2, offset 101: guest trapped$"):
        run(b"a", b"fail", spec=spec)


def test_too_large_a_share_of_failures_protects_the_topic() -> None:
    with pytest.raises(TooManyFailures, match="60 of 100"):
        run(*[b"fail"] * 60, *[b"a"] * 40)


def test_a_window_that_is_not_full_is_not_judged() -> None:
    window = FailureWindow(0.5)
    window.add(99, 99)
    with pytest.raises(TooManyFailures):
        window.add(1, 1)


def test_a_batch_of_large_outputs_is_run_in_parts(tmp_path: Path) -> None:
    spec = replace(SPEC, output_topics=("out",))
    again = "(br_if $again (local.tee $zero (i32.sub (local.get $zero) (i32.const 1))))"
    often = f"(local.set $zero (i32.const 1000)) (loop $again {guests.WRITE} {again})"
    module = TransformRuntime(tmp_path).compile(guests.guest(often + guests.when_key("p", guests.TRAP)))
    tally = BatchStats()
    rows = batch(*[b"x" * 1000] * 40)
    keys = pa.array([b"p" if row in (3, 39) else b"k" for row in range(40)])
    rows = rows.set_column(0, rows.schema.field("key"), keys)
    with module.instantiate(spec.context(), host=HostLimits(part_bytes=2**20)) as instance:
        deployment = Deployment(spec=spec, generation=1, state="running", updated_ms=0)
        parts = list(TransformRunner(deployment, instance, tally).run_placed(rows))
    assert len(parts) > 20
    letters = [part for part in parts if part.num_rows and part["topic"][0].as_py() == "dlq"]
    assert [letter["offset"].to_pylist() for letter in letters] == [[103], [139]]
    offsets = [offset for part in parts if part not in letters for offset in part["offset"].to_pylist()]
    assert offsets == [100 + row for row in range(40) if row not in (3, 39) for _ in range(1000)]
    assert (tally.records_in, tally.records_out, tally.failures) == ({2: 40}, {2: 38_000}, 2)


class Flood:
    """An instance that writes empty outputs without end."""

    def parts(self, batch: pa.RecordBatch) -> Iterator[TransformResult]:
        count = MAX_BATCH_ROWS + 3
        nothing = pa.nulls(count, pa.binary())
        columns = [pa.array([0] * count, pa.int32())] * 2 + [nothing, nothing, pa.nulls(count, HEADERS)]
        outputs = pa.RecordBatch.from_arrays(columns, schema=OUTPUT_SCHEMA)
        yield TransformResult(rows=batch.num_rows, outputs=outputs, failures=(), logs=())


def test_outputs_without_end_come_in_batches_that_have_room_for_their_provenance() -> None:
    deployment = Deployment(spec=SPEC, generation=1, state="running", updated_ms=0)
    parts = list(TransformRunner(deployment, Flood(), BatchStats()).run_placed(batch(b"one")))  # type: ignore[arg-type]
    assert [part.num_rows for part in parts] == [MAX_BATCH_ROWS, 3]
    names = {part["headers"].value_lengths().unique().to_pylist()[0] for part in parts}
    assert names == {1}


def test_rejections_by_the_guest_are_no_failures() -> None:
    out, _ = run(*[b"reject"] * 200)
    assert len(out) == 200


def test_tallies_add_up() -> None:
    total = BatchStats()
    for _ in range(2):
        _, tally = run(b"a", b"reject", b"fail")
        total += tally
    assert total.records_in == {2: 6}
    assert total.reasons() == {"Rejected: bad value": 2, "GuestTrap": 2}


def test_reasons_without_end_are_folded_together() -> None:
    tally = BatchStats()
    for number in range(200):
        tally.count_dead_letter(0, dead_letters.REJECTED, f"reason {number}: x")
    assert len(tally.reasons()) == 51
    assert sum(tally.reasons().values()) == 200
