"""Settings of the example DAGs: each place is a URL or an absolute folder, so that assets can be made of it."""

import runpy
from pathlib import Path

import pytest

from wasmline_provider.asset_uris import model_asset, transform_asset

FILE = Path(__file__).parents[3] / "dags" / "demo_settings.py"


@pytest.mark.parametrize(
    ("variables", "registry", "models"),
    [
        ({"WASMLINE_HOME": "home"}, "home/registry", "home/models"),
        ({"WASMLINE_HOME": "/home", "WASMLINE_MODELS": "ms"}, "/home/registry", "ms"),
        ({"WASMLINE_REGISTRY": "./r", "WASMLINE_MODELS": "s3://bucket/ms"}, "r", "s3://bucket/ms"),
    ],
)
def test_a_relative_place_is_one_of_the_folder_of_the_process(
    variables: dict[str, str], registry: str, models: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    made = runpy.run_path(str(FILE))
    assert made["REGISTRY"] == str(tmp_path / registry)
    assert made["MODELS"] == (models if "://" in models else str(tmp_path / models))
    extra = made["WASMLINE_CONNECTION"]["extra"]
    assert (extra["registry"], extra["models"]) == (made["REGISTRY"], made["MODELS"])
    transform_asset(registry=made["REGISTRY"], name="t")
    model_asset(models=made["MODELS"], name="m")


def test_a_launcher_a_pool_and_ports_of_metrics_are_used_where_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("WASMLINE_LAUNCHER", "WASMLINE_STREAM_POOL", "WASMLINE_METRICS_PORT")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    made = runpy.run_path(str(FILE))
    assert (made["LAUNCHER"], made["STREAM_POOL"], made["METRICS_PORTS"]) == (None, "default_pool", {})
    for name, value in zip(names, ("streams", "few", "9401"), strict=True):
        monkeypatch.setenv(name, value)
    made = runpy.run_path(str(FILE))
    assert (made["LAUNCHER"], made["STREAM_POOL"]) == ("streams", "few")
    assert made["METRICS_PORTS"] == {made["TRANSFORM"]: 9401, made["ENRICH_JOB"]: 9402}
