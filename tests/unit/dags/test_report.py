import io
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from delivery.contract import Violation
from delivery.correlations import signals
from delivery.generator import generate
from delivery.html_report import render, write_report
from delivery.prediction_verification import ServedModel
from delivery.reference_transform import transform
from delivery.report import BatchPoint, DemoReport, ModuleFacts, ServingFacts, StreamFacts
from delivery.text_report import print_summary
from delivery.verification import DeadLetter, Feature, Raw, verify
from enriching.benchmark_result import Comparison, Contender
from wasmline.dead_letters import ERROR, REASON, SOURCE_OFFSET, SOURCE_PARTITION
from wasmline.documents import decode
from wasmline.training import Dataset, Decision, ErrorComparison, Histogram, Interval, Metrics, RowCounts, TrainResult


@pytest.fixture(scope="module")
def report() -> DemoReport:
    raw: list[Raw] = []
    features: list[Feature] = []
    dead: list[DeadLetter] = []
    for number, record in enumerate(generate(2_000)):
        raw.append(Raw(0, number, record.key, record.value))
        found = transform(record.value)
        if isinstance(found, Violation):
            place: dict[str, bytes | None] = {SOURCE_PARTITION: b"0", SOURCE_OFFSET: str(number).encode()}
            dead.append(DeadLetter(*raw[-1][2:], {**place, ERROR: b"Rejected", REASON: b"<negative> & [/wrong]"}))
        else:
            features.append(Feature(record.key, found))
    return DemoReport(
        run="run-1",
        created="2026-01-01T00:00:00Z",
        source="generated, seed 7",
        module=ModuleFacts(name="delivery-distance", version="1.0.0", digest=f"sha256:{'ab' * 32}", size=31_245),
        stream=StreamFacts(
            input_topic="deliveries.raw",
            output_topic="deliveries.features",
            dead_letter_topic="deliveries.features.dlq",
            partitions=3,
            batches=[BatchPoint(batch=0, records=1_500, seconds=1.5), BatchPoint(batch=1, records=500, seconds=0.5)],
        ),
        accounting=verify(raw, features, dead),
        training=training(),
        serving=ServingFacts(
            module=ModuleFacts(name="delivery-eta", version="1.0.0", digest=f"sha256:{'cd' * 32}", size=99_000),
            output_topic="deliveries.eta",
            served=ServedModel(
                model="delivery-eta@1.0.0", digest="sha256:m", predictions=1_980, held_out=396, rmse=7.174
            ),
            explained=["deliveries.eta, partition 0, offset 1", "  by <delivery-eta@1.0.0>"],
        ),
        signals=signals(record.value for record in raw),
        steps={"build": 61.0, "stream": 2.5},
        look_next={"report": "build/demo/report.html"},
        comparison=Comparison(
            records=1_800,
            partitions=3,
            delay_ms=50.0,
            plain=Contender(calls=600, rate=58.4, at_once=3),
            parallel=Contender(calls=1_801, rate=642.4, at_once=64),
            enriched=1_797,
            dead_letters=3,
        ),
    )


def training() -> TrainResult:
    dataset = Dataset(
        topic="deliveries.features",
        topic_id="t",
        offsets={"0": (0, 1_980)},
        fields={"id": "string", "time_min": "double"},
        where="true",
        target="time_min",
        identity="id",
        seed=7,
        holdout_share=0.2,
    )
    metrics = Metrics(rows=396, rmse=7.174, mae=5.8, r2=0.41, mean_rmse=9.3, holdout="sha256:h")
    return TrainResult(
        model="delivery-eta",
        version="1.0.0",
        digest="sha256:m",
        size=220_000,
        dataset=dataset,
        dataset_digest=dataset.digest,
        rows=RowCounts(offsets=1_980, excluded=3, duplicates=1, training=1_580, holdout=396),
        target="time_min",
        columns=("distance_km",),
        metrics=metrics,
        champion=None,
        champion_metrics=None,
        decision=Decision(decision="promote", reason="no champion yet"),
        correlations=(),
        sample=[(20.0, 22.5), (30.0, 28.5)],
        residuals=Histogram(edges=(-5.0, 0.0, 5.0), counts=(200, 196)),
        seconds={"train": 0.5},
    )


class Tags(HTMLParser):
    """Counts tags, checks that they nest, and collects what would be loaded."""

    VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.open: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        references = {name: value or "" for name, value in attrs if name in ("src", "href", "xlink:href")}
        self.loaded += [value for value in references.values() if not value.startswith(("#", "data:"))]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


def test_the_document_and_the_page_are_written_and_the_document_reads_back(report: DemoReport, tmp_path: Path) -> None:
    page = write_report(report, tmp_path / "demo")
    assert page == tmp_path / "demo" / "report.html"
    assert page.read_text(encoding="utf-8") == render(report)
    assert decode(DemoReport, (tmp_path / "demo" / "report.json").read_bytes()) == report


def test_the_page_is_whole_and_loads_nothing(report: DemoReport) -> None:
    page = render(report)
    tags = parsed(page)
    assert tags.seen["svg"] == 4
    assert tags.seen["script"] == tags.seen["link"] == 0
    assert tags.loaded == []
    assert "@import" not in page
    assert "url(http" not in page


def test_no_two_elements_share_an_id_that_another_one_refers_to(report: DemoReport) -> None:
    page = render(report)
    referred = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', page))
    defined = Counter(re.findall(r'\bid="([^"]+)"', page))
    assert referred
    assert {name for name in referred if defined[name] != 1} == set()


@pytest.mark.parametrize(
    "text",
    [
        "2,000",
        "9.30",
        "7.17 min",
        "30.5 KiB",
        "1,000",
        "r = +0.3",
        "&lt;negative&gt; &amp; [/wrong]",
        "1 min 01 s",
        "<b>11.0 times</b>",
        "1,980 predictions in deliveries.eta",
        "by &lt;delivery-eta@1.0.0&gt;",
    ],
)
def test_the_page_shows_the_figures(report: DemoReport, text: str) -> None:
    assert text in render(report)


def test_the_figures_of_the_gate_are_on_the_page_and_in_the_summary(report: DemoReport) -> None:
    ratio = Interval(low=0.96012, high=0.99034, confidence=0.99)
    held_out = ErrorComparison(rows=396, rmse=7.174, champion_rmse=7.312, ratio=ratio)
    bicycle = ErrorComparison(rows=3, rmse=8.1, champion_rmse=8.2, ratio=None)
    decision = Decision(
        decision="promote",
        reason="better",
        held_out=held_out,
        segments={"vehicle=<bicycle>": bicycle},
        forward=held_out,
    )
    metrics = replace(report.training.metrics, linear_rmse=7.671, forward_rmse=7.25, forward_rows=396)
    decided = replace(report, training=replace(report.training, decision=decision, metrics=metrics))
    text = io.StringIO()
    print_summary(decided, Console(file=text, width=200))
    assert "linear predictor 7.671 min" in text.getvalue()
    assert "7.250 min on the 396 newest records" in text.getvalue()
    assert "held-out rows: 7.174 min, champion 7.312 min, ratio 0.960 to 0.990" in text.getvalue()
    page = render(decided)
    parsed(page)
    row = "".join(
        f"<td>{cell}</td>" for cell in ("vehicle=&lt;bicycle&gt;", "8.100 min", "8.200 min", "not tested", "3")
    )
    assert row in page
    assert "linear predictor 7.671 min" in page


def test_the_first_micro_batch_alone_gives_no_rate(report: DemoReport) -> None:
    one = replace(report, stream=replace(report.stream, batches=report.stream.batches[:1]))
    text = io.StringIO()
    print_summary(one, Console(file=text, width=200))
    assert "records/s" not in text.getvalue()
    assert "all in the first micro-batch, in which Spark's Python workers start (1.5 s)" in text.getvalue()
    assert "<b>–</b><span>records/s</span>" in render(one)


def test_the_facts_that_the_readme_shows_are_those_of_a_summary(report: DemoReport) -> None:
    text = io.StringIO()
    print_summary(report, Console(file=text, width=200))
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    shown = next(block for block in readme.split("```")[1::2] if "\nrecords in " in block)
    facts = re.findall(r"^ {0,2}([a-zA-Z][a-zA-Z ]*?) {2,}\S", shown.partition("one prediction")[0], re.MULTILINE)
    assert len(facts) > 8
    for fact in facts:
        assert re.search(rf"^ {{0,2}}{fact} {{2,}}", text.getvalue(), re.MULTILINE), fact


def test_equal_reports_give_equal_pages(report: DemoReport) -> None:
    assert render(report) == render(report)


def test_a_run_without_batches_dead_letters_or_signals_still_has_a_page(report: DemoReport) -> None:
    bare = replace(
        report,
        stream=replace(report.stream, batches=[]),
        accounting=replace(report.accounting, dead_letters=0, reasons={}, errors={}),
        training=replace(report.training, sample=[]),
        signals=signals([]),
        steps={},
        comparison=None,
    )
    assert "Nothing was dead-lettered." in render(bare)
    parsed(render(bare))


def test_the_summary_tells_records_reasons_rate_errors_and_where_to_look(report: DemoReport) -> None:
    text = io.StringIO()
    print_summary(report, Console(file=text, width=100))
    shown = text.getvalue()
    expected: list[Any] = ["2,000 on 3 partitions", "<negative> & [/wrong]", "1,000 records/s", "RMSE 7.174", "9.300"]
    expected += ["1,980 in deliveries.eta", "by <delivery-eta@1.0.0>"]
    expected += ["58 calls/s: 3 at a time", "the first 600 orders", "642 calls/s: 64 at a time, 11.0 times as many"]
    for fact in [*expected, "promote", "build 1 min 01 s", "distance_km", "report.html", "sha256:abab"]:
        assert fact in shown
    assert len(shown.splitlines()) < 34


def test_the_digest_and_a_command_to_look_next_are_one_line_however_narrow_the_terminal(report: DemoReport) -> None:
    command = f"make up && /{'deep/' * 12}wasmline list -X bootstrap.servers=127.0.0.1:9092"
    text = io.StringIO()
    print_summary(replace(report, look_next={"the deployments": command}), Console(file=text, width=60))
    *_, digest, next_command = text.getvalue().splitlines()
    assert digest == f"the module's digest: {report.module.digest}"
    assert next_command == f"the deployments: {command}"
