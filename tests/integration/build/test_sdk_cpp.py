"""The C++ SDK, in modules built with it and run in the real host."""

import json
import math
import os
import struct
from collections.abc import Iterator
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wasmline.build import build, load_project, scaffold
from wasmline.errors import GuestTrap
from wasmline.record_batches import RECORD_SCHEMA
from wasmline.wasm import TransformContext, TransformInstance, TransformResult, TransformRuntime

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "1000")) // 10
"""Lists of numbers to read, some twenty numbers each."""

PROBE = r"""
#include <cmath>
#include <cstring>

#include "wasmline/json_reader.hpp"
#include "wasmline/transform.hpp"

using wasmline::Record;
using wasmline::Writer;

// A constant expression with undefined behaviour, such as a signed overflow, does not compile.
static_assert(wasmline::detail::repeated(0xFF) == ~std::uint64_t{0});

// The key says what to do with the value.
void act(std::string_view what, const Record& record, Writer& writer) {
  std::string text;
  const std::string_view value = record.value.value_or("");
  if (what == "echo") return writer.write(record);
  if (what == "second") return writer.write(record, wasmline::output_topic(1));
  if (what == "nowhere") return writer.write(record, "nowhere");
  if (what == "third") return writer.write(record, wasmline::output_topic(2));
  if (what == "reject") return writer.reject(record, "because", wasmline::output_topic(1));
  if (what == "log") return wasmline::log(value);
  if (what == "position") {
    wasmline::append_number(text, record.timestamp);
    text += ' ';
    wasmline::append_number(text, record.offset);
  } else if (what == "json") {
    wasmline::JsonObject(text)
        .add("text", value)
        .add("nan", std::nan(""))
        .add("n", 7)
        .add("empty", value.empty())
        .add("literal", "text")
        .close();
  } else if (what == "parse double") {
    const auto number = wasmline::parse<double>(value);
    if (number) text.assign(reinterpret_cast<const char*>(&*number), 8);
  } else if (what == "read number") {
    wasmline::JsonReader reader(value);
    while (reader.next("n")) {
      const double number = reader.number();
      text.append(reinterpret_cast<const char*>(&number), 8);
    }
    if (!reader.valid()) text.clear();
  } else if (what == "print double") {
    double number;
    std::memcpy(&number, value.data(), 8);
    wasmline::append_number(text, number);
  } else if (what == "parse int") {
    const auto number = wasmline::parse<int>(value);
    if (number) wasmline::append_number(text, *number);
  } else if (what == "twice") {
    writer.write(record);
    return writer.write(record);
  } else {
    return;
  }
  writer.write({.value = text});
}

int main() {
  wasmline::on_record([](const Record& record, Writer& writer) {
    if (!record.key || record.key->substr(0, 1) != ":") return writer.write(record);
    act(record.key->substr(1), record, writer);
  });
}
"""


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformInstance]:
    folder = tmp_path_factory.mktemp("probe")
    scaffold(folder, name="probe")
    (folder / "src/main.cc").write_text(PROBE)
    wasm = Path(build(load_project(folder)).path).read_bytes()
    context = TransformContext(name="probe", input_topic="in", output_topics=("first", "second"))
    with TransformRuntime().compile(wasm).instantiate(context) as instance:
        yield instance


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    filled = [{"timestamp": 0, "partition": 0, "offset": 0, **row} for row in rows]
    return pa.RecordBatch.from_pylist(filled, schema=RECORD_SCHEMA)


def ask(probe: TransformInstance, what: str, *values: bytes | None) -> list[Any]:
    result = probe.transform(batch(*({"key": f":{what}".encode(), "value": value} for value in values)))
    assert result.failures == ()
    return list(result.outputs.column("value").to_pylist())


def refusal(probe: TransformInstance, what: str) -> tuple[Any, TransformResult]:
    result = probe.transform(batch({"key": f":{what}".encode(), "value": b"x"}))
    (failure,) = result.failures
    assert isinstance(failure.error, GuestTrap)
    return failure.error, result


blobs = st.none() | st.binary(max_size=300)
headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=10), "value": blobs}), min_size=1, max_size=4
)
rows = st.fixed_dictionaries({"key": blobs, "value": blobs, "headers": headers})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(rows, min_size=1, max_size=20))
def test_records_pass_through_unchanged(probe: TransformInstance, records: list[dict[str, Any]]) -> None:
    for record in records:
        if record["key"] and record["key"].startswith(b":"):
            record["key"] = b";" + record["key"]
    result = probe.transform(batch(*records))
    assert result.failures == ()
    outputs = result.outputs.select(["key", "value", "headers"]).to_pylist()
    assert [{**output, "headers": output["headers"] or None} for output in outputs] == records


def test_a_large_record_passes_through_unchanged(probe: TransformInstance) -> None:
    value = bytes(range(256)) * 4096
    assert ask(probe, "echo", value, b"", value[:-1]) == [value, b"", value[:-1]]


def test_a_record_goes_to_the_topic_that_is_named(probe: TransformInstance) -> None:
    result = probe.transform(batch({"key": b":second", "value": b"x"}, {"key": b"k", "value": b"y"}))
    assert result.outputs.column("output").to_pylist() == [1, 0]


def test_a_topic_that_is_no_output_is_a_trap_that_says_so(probe: TransformInstance) -> None:
    error, result = refusal(probe, "nowhere")
    assert "not an output of this transform" in str(error) + "".join(line.text for line in result.logs)
    error, result = refusal(probe, "third")
    assert "there is no output topic 2" in str(error) + "".join(line.text for line in result.logs)


def test_a_rejected_record_is_as_it_came_with_the_reason_behind_its_headers(probe: TransformInstance) -> None:
    result = probe.transform(
        batch({"key": b":reject", "value": None, "headers": [{"key": "a", "value": None}, {"key": "b", "value": b"1"}]})
    )
    (output,) = result.outputs.to_pylist()
    assert output == {
        "row": 0,
        "output": 1,
        "key": b":reject",
        "value": None,
        "headers": [
            {"key": "a", "value": None},
            {"key": "b", "value": b"1"},
            {"key": "wasmline.reason", "value": b"because"},
        ],
    }


def test_a_record_may_give_many_or_none(probe: TransformInstance) -> None:
    result = probe.transform(batch({"key": b":twice", "value": b"x"}, {"key": b":drop"}, {"key": b"k"}))
    assert result.outputs.column("row").to_pylist() == [0, 0, 2]


def test_a_logged_line_reaches_the_host(probe: TransformInstance) -> None:
    result = probe.transform(batch({"key": b":log", "value": "grüß".encode()}))
    assert [(line.row, line.level, line.text.rstrip("\n")) for line in result.logs] == [(0, "WARN", "grüß")]


def test_a_record_has_its_own_time_and_offset(probe: TransformInstance) -> None:
    result = probe.transform(batch({"key": b":position", "timestamp": 1700000000123, "offset": 2**40}))
    assert result.outputs.column("value").to_pylist() == [b"1700000000123 1099511627776"]


def read_back(probe: TransformInstance, texts: list[str]) -> list[str]:
    return [json.loads(printed)["text"] for printed in ask(probe, "json", *(text.encode() for text in texts))]


OVERLONG, SURROGATE, BEYOND = b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"
TORN = [b"\xff", b"a\xe2\x82", b"\xf0\x9f\x98", b"\xf5"]
TEXTS = [b"", b"plain", b'"quoted" \\ back', b"\x00\x1f\t\n\r\x7f", "é€😀".encode()]


@pytest.mark.parametrize("text", [*TEXTS, *TORN, OVERLONG, SURROGATE, BEYOND])
def test_json_is_valid_whatever_the_bytes(probe: TransformInstance, text: bytes) -> None:
    (printed,) = ask(probe, "json", text)
    document = json.loads(printed)
    assert list(document) == ["text", "nan", "n", "empty", "literal"]
    assert (document["nan"], document["n"], document["empty"], document["literal"]) == (None, 7, not text, "text")
    expected = text.decode("utf-8", "replace")
    assert document["text"].replace("\ufffd", "") == expected.replace("\ufffd", "")
    assert ("\ufffd" in document["text"]) == ("\ufffd" in expected)


@pytest.mark.parametrize("special", ['"', "\\", "\n", "\x1f", "\x7f", "\x80", "€", "😀"])
def test_json_of_a_text_reads_back_as_it_wherever_a_special_character_is(
    probe: TransformInstance, special: str
) -> None:
    texts = ["a" * size for size in range(26)]
    texts += [text[:at] + special + text[at:] for text in texts for at in range(len(text) + 1)]
    assert read_back(probe, texts) == texts


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=50))
def test_json_of_any_text_reads_back_as_it(probe: TransformInstance, texts: list[str]) -> None:
    assert read_back(probe, texts) == texts


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_a_number_reads_back_as_exactly_the_same_number(probe: TransformInstance, numbers: list[float]) -> None:
    printed = ask(probe, "print double", *(struct.pack("<d", number) for number in numbers))
    for text, number in zip(printed, numbers, strict=True):
        assert float(text) == number
        assert math.copysign(1, float(text)) == math.copysign(1, number)
        assert len(text) <= len(repr(number))
    parsed = ask(probe, "parse double", *(repr(number).encode() for number in numbers))
    assert [struct.unpack("<d", data)[0] for data in parsed] == numbers


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.decimals(-99_999, 99_999, places=2).map(float), min_size=1, max_size=50))
def test_a_short_decimal_is_printed_as_short_as_it_can_be(probe: TransformInstance, numbers: list[float]) -> None:
    printed = ask(probe, "print double", *(struct.pack("<d", number) for number in numbers))
    for text, number in zip(printed, numbers, strict=True):
        assert float(text) == number
        assert len(text) <= len(repr(number).removesuffix(".0"))
    parsed = ask(probe, "parse double", *(f"{number:.2f}".encode() for number in numbers))
    assert [struct.unpack("<d", data)[0] for data in parsed] == numbers


@pytest.mark.parametrize(
    "text", [b"", b"-", b".", b"1.2.3", b" 1", b"1 ", b"1x", b"+1", b"0x1p3", b"1,5", b"1e999", b"--1", b"e5"]
)
def test_text_that_is_not_wholly_a_number_is_none(probe: TransformInstance, text: bytes) -> None:
    assert ask(probe, "parse double", text) == [b""]


def halfway(number: float, change: int) -> str:
    """Return the middle between a double and the next one, exactly, or a number just beside it."""
    with localcontext(prec=1_200):
        middle = (Decimal(number) + Decimal(math.nextafter(number, math.inf))) / 2
        return str(middle + change * abs(middle).scaleb(-900))


finite = st.floats(-1e308, 1e308)
number_texts = st.one_of(
    finite.map(repr),
    finite.map("{:.16e}".format),
    st.floats(-1e30, 1e30).map("{:.17f}".format),
    st.builds(halfway, finite, st.sampled_from([-1, 0, 1])),
    st.builds(halfway, st.integers(2**52, 2**53).map(float), st.sampled_from([-1, 0, 1])),
    st.builds("{}e{}".format, st.integers(-(2**64) - 9, 2**64 + 9), st.integers(-70, 70)),
    st.builds("{}e{}".format, st.integers(-(2**64), 2**64), st.integers(-360, 320)),
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,4})?", fullmatch=True),
    st.from_regex(r"-?0\.0{0,30}[0-9]{15,22}", fullmatch=True),
)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(number_texts, min_size=1, max_size=50))
def test_a_number_is_read_as_python_reads_it(probe: TransformInstance, texts: list[str]) -> None:
    expected = [struct.pack("<d", float(text)) for text in texts]
    assert ask(probe, "read number", *(f'{{"n":{text}}}'.encode() for text in texts)) == expected
    parsed = ask(probe, "parse double", *(text.encode() for text in texts))
    for text, found, data in zip(texts, parsed, expected, strict=True):
        is_in_range = math.isfinite(float(text)) and bool(float(text)) == bool(Decimal(text))
        assert found == (data if is_in_range else b"")


def test_whole_numbers_stay_in_their_range(probe: TransformInstance) -> None:
    assert ask(probe, "parse int", b"-2147483648", b"2147483648", b"1.5") == [b"-2147483648", b"", b""]
