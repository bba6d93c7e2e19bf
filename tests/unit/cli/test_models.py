"""``wasmline models`` without a cluster, and on registries whose writer is hostile."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from support.eta_model import eta_record, eta_rows, held_out
from support.gated_models import METRICS, ROWS, forward_rows, publish_gated
from support.served_model import small_models
from wasmline.cli import main
from wasmline.job_specs import SliceRequest
from wasmline.moments import moment
from wasmline.training import (
    Decision,
    GatePolicy,
    ModelRegistry,
    NewSlice,
    PromotionLog,
    SliceLog,
    TopicOffsets,
    promote,
)

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\n"
PROMOTE = Decision(decision="promote", reason="RMSE 7.000")
KEEP = Decision(decision="keep", reason="RMSE 8.000")
NO_FIGURES = ["-", "-", "-", "-"]
"""Of decisions of earlier releases: RATIO, LINEAR, FORWARD, REFUSAL."""


@pytest.fixture
def models(tmp_path: Path) -> str:
    """Return a registry with a model of three versions: the second was kept back, the third is the champion."""
    rows = eta_rows()
    registry = ModelRegistry(str(tmp_path / "models"))
    metrics = []
    for record, model in small_models(rows, eta_record()):
        registry.publish(record, model, held_out=held_out(rows[:50]))
        metrics.append(record.metrics)
    log = PromotionLog(registry.url)
    log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics[0])
    log.append("eta", "1.1.0", KEEP, champion="1.0.0", metrics=metrics[1], champion_metrics=metrics[0], run="run-2")
    log.append("eta", "1.2.0", PROMOTE, champion="1.0.0", metrics=metrics[2], by="ada")
    return registry.url


@pytest.fixture
def wasmline(models: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    for name in ("WASMLINE_KAFKA_CONFIG", "WASMLINE_KAFKA_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    environment = {"WASMLINE_MODELS": models, "WASMLINE_REGISTRY": str(tmp_path / "registry")}

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["models", *arguments], env=environment)

    return run


def test_models_are_listed_without_a_cluster(wasmline: Callable[..., Result]) -> None:
    head, row = wasmline("list").stdout.splitlines()
    assert head.split() == ["MODEL", "CHAMPION", "VERSIONS", "LATEST", "RMSE", "SERVING"]
    assert row.split() == ["eta", "1.2.0", "3", "1.2.0", "5.000", "-"]
    [listed] = json.loads(wasmline("list", "--json").stdout)
    assert (listed["versions"], listed["serving"]) == (["1.0.0", "1.1.0", "1.2.0"], None)


def test_a_check_needs_a_cluster(wasmline: Callable[..., Result]) -> None:
    for command in (("list",), ("show", "eta")):
        result = wasmline(*command, "--check")
        assert result.exit_code == 1
        assert "no Kafka is configured" in result.stderr


def test_a_version_is_shown_with_its_training(wasmline: Callable[..., Result]) -> None:
    shown = dict(line.split(maxsplit=1) for line in wasmline("show", "eta@1.1.0").stdout.splitlines())
    assert shown["model"] == "eta@1.1.0, the champion is 1.2.0"
    assert shown["topic"] == "features, 1,500 offsets: 0: [0, 1500)"
    assert shown["features"] == 'km, age, vehicle (scooter, bicycle, a "quoted" ä)'
    assert shown["parameters"] == "trees 2, depth 2, learning_rate 0.3, seed 7"
    assert shown["metrics"].startswith("RMSE 6.000, MAE 5.700")
    assert (shown["module"], shown["serving"]) == ("not published", "not known: no cluster is named")
    document = json.loads(wasmline("show", "eta", "--json").stdout)
    assert (document["version"], document["champion"], document["record"]["run"]) == ("1.2.0", "1.2.0", "run-3")


def test_the_history_says_who_decided_what_when_and_why(wasmline: Callable[..., Result]) -> None:
    head, *rows = wasmline("history", "eta").stdout.splitlines()
    assert head.split("  ")[0] == "NUMBER"
    cells = [[cell.strip() for cell in row.split("  ") if cell] for row in rows]
    assert [[row[0], *row[2:]] for row in cells] == [
        ["1", "promote", "1.0.0", "-", "7.000", "-", *NO_FIGURES, "-", "-", "RMSE 7.000"],
        ["2", "keep", "1.1.0", "1.0.0", "6.000", "7.000", *NO_FIGURES, "-", "run-2", "RMSE 8.000"],
        ["3", "promote", "1.2.0", "1.0.0", "5.000", "-", *NO_FIGURES, "ada", "-", "RMSE 7.000"],
    ]
    decisions = json.loads(wasmline("history", "eta", "--json").stdout)
    assert [each["by"] for each in decisions] == ["", "", "ada"]


def test_two_versions_are_compared_side_by_side(wasmline: Callable[..., Result]) -> None:
    lines = wasmline("compare", "eta", "1.0.0", "1.2.0").stdout.splitlines()
    assert lines[0].split() == ["1.0.0", "1.2.0"]
    assert lines[1].split() == ["rmse", "7.000", "5.000"]
    assert lines[5].split() == ["linear_rmse", "-", "-"]
    assert lines[8:] == ["measured on the same rows", "parameters.trees: 1 | 3"]
    found = json.loads(wasmline("compare", "eta", "1.0.0", "1.2.0", "--json").stdout)
    assert (found["comparable"], found["differences"]) == (True, {"parameters.trees": [1, 3]})


@pytest.fixture
def decided(models: str) -> str:
    """Return the registry with a better and a worse model, of which the gate decided."""
    policy = GatePolicy(segments=("vehicle",))
    forward = forward_rows(ROWS[300:600], first_offset=300)
    champion: str | None = "1.2.0"
    for version in publish_gated(models, 12, 3, forward=forward):
        promote(models, "eta", version, PROMOTE, champion=champion, metrics=METRICS, policy=policy)
        champion = None  # was live when the second one was trained
    return models


def test_the_figures_of_the_gate_are_shown_with_the_version(wasmline: Callable[..., Result], decided: str) -> None:
    lines = wasmline("show", "eta@1.4.0").stdout.splitlines()
    assert any(line.startswith("metrics") and "linear predictor 11.000" in line for line in lines)
    gate = next(place for place, line in enumerate(lines) if line.startswith("gate"))
    assert "decision 5, keep: RMSE" in lines[gate]
    names = [line.split(":")[0].strip() for line in lines[gate + 1 : gate + 7]]
    assert names == [
        "held out",
        "vehicle is null",
        'vehicle=a "quoted" ä',
        "vehicle=bicycle",
        "vehicle=scooter",
        "forward",
    ]
    assert ", ratio 5.1" in lines[gate + 1]
    assert lines[gate + 2].endswith(", ratio not tested (29 rows)")
    shown = json.loads(wasmline("show", "eta@1.4.0", "--json").stdout)
    assert shown["decisions"][0]["segments"]["vehicle=scooter"]["rows"] == 96


def test_the_history_and_a_comparison_have_the_figures_of_the_gate(
    wasmline: Callable[..., Result], decided: str
) -> None:
    *_, last = wasmline("history", "eta").stdout.splitlines()
    assert " to " in last
    assert "  11.000  -        noise" in " ".join(last.split(" "))
    lines = wasmline("compare", "eta", "1.3.0", "1.4.0").stdout.splitlines()
    place = lines.index("decision 5, keep: 1.4.0 beside 1.3.0")
    assert lines[place + 1].startswith("  held out: RMSE ")


def test_metrics_of_different_rows_are_said_to_be_no_comparison(wasmline: Callable[..., Result], models: str) -> None:
    record = ModelRegistry(models).get("eta", "1.2.0").record
    other = replace(record, metrics=replace(record.metrics, holdout="sha256:bb"), held_out_rows=0)
    ModelRegistry(models).publish(other, ModelRegistry(models).read("eta", "1.2.0"))
    told = wasmline("compare", "eta", "1.2.0", "1.3.0").stdout
    assert "not comparable: each was measured on the holdout of its own training" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "etta"),
        ("history", "etta"),
        ("slices", "etta"),
        ("compile", "etta"),
        ("show", "eta@9.0.0"),
        ("compare", "eta", "1.0.0", "x"),
    ],
)
def test_what_does_not_exist_is_one_line_on_stderr(wasmline: Callable[..., Result], arguments: tuple[str, ...]) -> None:
    result = wasmline(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("wasmline: ")
    assert result.stderr.count("\n") == 1


def forge_decision(models: str, **changed: Any) -> None:
    path = Path(models) / "promotions/eta/000003/promotion.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


@pytest.mark.parametrize("style", [(), ("--json",)])
def test_what_a_decision_says_obeys_nothing_at_a_terminal(
    wasmline: Callable[..., Result], models: str, style: tuple[str, ...]
) -> None:
    forge_decision(models, reason=ESCAPES * 100, run=ESCAPES, by=ESCAPES, decided_ms=10**30)
    result = wasmline("history", "eta", *style)
    assert result.exit_code == 0, result.output
    assert all(line.isprintable() for line in result.stdout.splitlines())
    assert "owned" in result.stdout


def test_what_a_record_says_obeys_nothing_at_a_terminal(wasmline: Callable[..., Result], models: str) -> None:
    record = ModelRegistry(models).get("eta", "1.2.0").record
    dataset = replace(record.dataset, topic=ESCAPES, where=ESCAPES)
    hostile = replace(
        record,
        dataset=dataset,
        run=ESCAPES,
        target=ESCAPES,
        libraries={ESCAPES: ESCAPES},
        held_out_rows=0,
    )
    ModelRegistry(models).publish(hostile, b"{}")
    for command in (("show", "eta@1.3.0"), ("compare", "eta", "1.2.0", "1.3.0")):
        for style in ((), ("--json",)):
            result = wasmline(*command, *style)
            assert result.exit_code == 0, result.output
            assert all(line.isprintable() for line in result.stdout.splitlines())


def test_a_model_that_cannot_be_read_is_named_and_hides_no_other(wasmline: Callable[..., Result], models: str) -> None:
    record = replace(ModelRegistry(models).get("eta", "1.0.0").record, model="price", held_out_rows=0)
    ModelRegistry(models).publish(record, b"{}")
    forge_decision(models, decision="demote")
    result = wasmline("list")
    assert result.exit_code == 0
    _, eta, price, told = result.stdout.splitlines()
    assert eta.split()[-1] == "unreadable"
    assert price.split() == ["price", "-", "1", "1.0.0", "7.000", "-"]
    assert told.startswith("unreadable: promotions/eta/000003/promotion.json")


def test_a_time_that_no_calendar_has_is_shown_as_its_number() -> None:
    assert moment(1_700_000_000_000) == "2023-11-14T22:13:20Z"
    assert moment(10**30) == f"{10**30} ms"
    assert moment(-(10**30)) == f"{-(10**30)} ms"


def test_slices_are_shown_with_what_was_asked_for(wasmline: Callable[..., Result], models: str) -> None:
    topic = TopicOffsets(topic="features", topic_id="t1", beginning={"0": 0}, end={"0": 2_000}, times={})
    log = SliceLog(models)
    for number, (request, ranges) in enumerate(
        [
            (SliceRequest(run="nightly/1", since=1_767_225_600_000, until=1_767_312_000_000), (0, 1_500)),
            (SliceRequest(run=f"nightly/{ESCAPES}", until={"0": 2_000}), (1_600, 1_700, 1_800, 2_000)),
        ]
    ):
        new = NewSlice(offsets={"0": ranges}, times={}, forgotten=number)
        assert log.append("eta", number, new, request=request, topic=topic)
    result = wasmline("slices", "eta")
    head, first, second = result.stdout.splitlines()
    heads = ["NUMBER", "TIME", "TOPIC", "SINCE", "UNTIL", "OFFSETS", "FORGOTTEN", "DAG", "RUN", "RANGES"]
    assert head.split() == heads
    assert first.split()[2:8] == ["features", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "1,500", "0", "nightly/1"]
    assert second.split()[3:8] == ["previous", "0:", "2000", "300", "1"]
    assert second.endswith("0: [1600, 1700), 0: [1800, 2000)")
    assert result.stderr.startswith("features: 200 offsets below the end of the slices are in none")
    assert all(line.isprintable() for line in (head, first, second))
    [_, last] = json.loads(wasmline("slices", "eta", "--json").stdout)
    assert (last["number"], last["offsets"], last["request"]["until"]) == (
        2,
        {"0": [1600, 1700, 1800, 2000]},
        {"0": 2000},
    )


def test_a_model_without_slices_is_said_to_have_none(wasmline: Callable[..., Result]) -> None:
    result = wasmline("slices", "eta")
    assert (result.exit_code, result.stdout.splitlines()[1:]) == (0, [])
    assert "there are no slices of eta in " in result.stderr


@pytest.mark.parametrize("arguments", [("eta",), ("eta@1.0.0", "1.0.0")])
def test_a_rebuild_needs_its_version_once(wasmline: Callable[..., Result], arguments: tuple[str, ...]) -> None:
    result = wasmline("rebuild", *arguments)
    assert result.exit_code == 2
    assert "name the version once: MODEL@VERSION, or MODEL VERSION" in result.stderr


@pytest.mark.parametrize("arguments", [("eta@9.0.0",), ("eta", "9.0.0")])
def test_a_rebuild_takes_its_version_with_the_model_or_after_it(
    wasmline: Callable[..., Result], arguments: tuple[str, ...]
) -> None:
    result = wasmline("rebuild", *arguments, "-X", "bootstrap.servers=localhost:1")
    assert "no eta@9.0.0 among the models" in result.stderr
