"""Compiles a model version to a transform: the scorer, built once, with the model as one more data segment."""

from __future__ import annotations

import tempfile
from pathlib import Path

from wasmline.build import BuildReport, build, load_project
from wasmline.build.installed_folder import installed_folder
from wasmline.training.model_data import MARK, encode_model, parse_ensemble
from wasmline.training.model_registry import ModelRecord
from wasmline.wasm.binary import add_data


def compile_model(model: bytes, record: ModelRecord, *, cache_dir: Path | None = None) -> bytes:
    """Return the transform that predicts from JSON records of the model's fields. The same model gives the same bytes.

    It is not proven yet: ``compile_proven`` does both. Raises InvalidModel, and the errors of ``build_scorer``.
    """
    return add_model(scorer_module(cache_dir), model, record)


def add_model(scorer: bytes, model: bytes, record: ModelRecord) -> bytes:
    """Return the scorer with a model. Raises InvalidModel."""
    ensemble = parse_ensemble(model, len(record.columns))
    data = encode_model(ensemble, record.layout, record.dataset.identity, record.dataset.fields)
    return add_data(scorer, data, MARK)


def scorer_module(cache_dir: Path | None = None) -> bytes:
    """Return the scorer, which has no model: see ``build_scorer``."""
    return build_scorer(cache_dir)[1]


def build_scorer(cache_dir: Path | None = None) -> tuple[BuildReport, bytes]:
    """Return the scorer and the report of its build; it is compiled where the cache does not have it.

    Raises ToolchainMissing, BuildFailed.
    """
    folder = installed_folder("the scorer's sources", "model_scorer", checkout="model_scorer")
    with tempfile.TemporaryDirectory(prefix="wasmline-scorer-") as temporary:
        output = Path(temporary) / "scorer.wasm"
        report = build(load_project(folder), output=output, cache_dir=cache_dir)
        return report, output.read_bytes()
