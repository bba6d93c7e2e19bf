"""The configuration of Prometheus and Grafana: its files, its targets and the form of its queries."""

import runpy
from typing import Any

import pytest
import yaml

from support.containers import dashboard, promql
from support.containers.compose_file import FOLDER, REPOSITORY, mounts, option, read_compose
from support.containers.promql import Selector
from wasmline.spark.prometheus import LABELS

SERVICES = read_compose()["services"]


def read(path: str) -> Any:
    return yaml.safe_load((FOLDER / path).read_text())


def scrapes() -> dict[str, dict[str, Any]]:
    return {each["job_name"]: each for each in read("prometheus/prometheus.yaml")["scrape_configs"]}


def test_prometheus_scrapes_the_port_of_each_stream_and_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WASMLINE_METRICS_PORT", SERVICES["airflow"]["environment"]["WASMLINE_METRICS_PORT"])
    ports = runpy.run_path(str(REPOSITORY / "dags" / "demo_settings.py"))["METRICS_PORTS"]
    targets = {
        name: [target for each in found["static_configs"] for target in each["targets"]]
        for name, found in scrapes().items()
    }
    assert targets == {
        "streams": [f"launcher:{port}" for port in ports.values()],
        "consumers": [f"worker:{option(SERVICES['worker'], '--metrics-port')}"],
    }
    (labels,) = (each["labels"] for each in scrapes()["consumers"]["static_configs"])
    assert labels == {"group": option(SERVICES["worker"], "--group")}


def test_a_label_of_ours_that_prometheus_has_too_is_kept() -> None:
    assert "job" in LABELS
    assert scrapes()["streams"]["honor_labels"] is True


def test_prometheus_and_grafana_read_the_files_that_are_mounted() -> None:
    prometheus, grafana = (mounts(SERVICES[name]) for name in ("prometheus", "grafana"))
    assert prometheus[option_value("prometheus", "--config.file")] == "./prometheus/prometheus.yaml"
    assert prometheus[option_value("prometheus", "--storage.tsdb.path")] == "prometheus"
    (provider,) = read("grafana/provisioning/dashboards/wasmline.yaml")["providers"]
    folder = provider["options"]["path"]
    assert grafana[folder] == f"./{dashboard.FILE.parent.relative_to(FOLDER)}"
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{folder}/{dashboard.FILE.name}"
    for kind in ("datasources", "dashboards"):
        assert grafana[f"/etc/grafana/provisioning/{kind}"] == f"./grafana/provisioning/{kind}"


def option_value(service: str, name: str) -> str:
    """Return the value of an option in the form NAME=VALUE."""
    (found,) = (each for each in str(SERVICES[service]["command"]).split() if each.startswith(f"{name}="))
    return found.partition("=")[2]


def test_each_panel_reads_the_provisioned_source_has_its_own_place_and_is_described() -> None:
    (source,) = read("grafana/provisioning/datasources/prometheus.yaml")["datasources"]
    assert source["url"] == "http://prometheus:9090"
    found = dashboard.read_dashboard()
    panels = found["panels"]
    reference = {"type": source["type"], "uid": source["uid"]}
    places: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & places, panel["title"]
        assert max(x for x, _ in cells) < 24
        places |= cells
        if panel["type"] != "row":
            assert panel["datasource"] == reference
            assert all(target["datasource"] == reference for target in panel["targets"])
            assert panel["description"], panel["title"]
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("query", dashboard.queries())
def test_a_query_is_of_our_metrics_and_its_rates_are_of_counters(query: str) -> None:
    selectors = promql.parse(query)
    assert selectors
    for each in selectors:
        assert each.metric.startswith(("wasmline_partition_", "pc_"))
        if each.function:
            assert each.metric.endswith(("_total", "_sum", "_count")), "a rate is of a counter"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('sum by (a, b) (rate(x_total{c=~"$d"}[$__rate_interval])) / 2', [("x_total", {"a", "b", "c"}, "rate")]),
        ("time() - min(x) by (a)", [("x", {"a"}, "")]),
        ('-x{a!="b", c="d"} * (y > 1.5)', [("x", {"a", "c"}, ""), ("y", set(), "")]),
    ],
)
def test_the_parser_names_metrics_labels_and_functions(query: str, found: list[tuple[str, set[str], str]]) -> None:
    assert promql.parse(query) == [Selector(metric, frozenset(labels), function) for metric, labels, function in found]


@pytest.mark.parametrize(
    "query",
    [
        "sum by (a) (x",
        "rate(x_total)",
        "rate(x[5m]) y",
        "x{a}",
        'x{a="b"',
        "delta(x[5m])",
        "sum by a (x)",
        "x +",
        "x @ 5",
        "",
    ],
)
def test_the_parser_refuses_what_is_no_query(query: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        promql.parse(query)
