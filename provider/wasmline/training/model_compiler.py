"""Compiles a model version to a transform: the scorer, built once, with the model as one more data segment."""

from __future__ import annotations

import tempfile
from pathlib import Path

from wasmline.build import build, load_project
from wasmline.errors import ToolchainMissing
from wasmline.training.model_data import MARK, encode_model, parse_ensemble
from wasmline.training.model_registry import ModelRecord
from wasmline.wasm.binary import add_data


def compile_model(model: bytes, record: ModelRecord, *, cache_dir: Path | None = None) -> bytes:
    """Return the transform that predicts from JSON records of the model's fields. The same model gives the same bytes.

    Raises InvalidModel, and the errors of ``scorer_module``.
    """
    ensemble = parse_ensemble(model, len(record.columns))
    data = encode_model(ensemble, record.layout, record.dataset.identity, record.dataset.fields)
    return add_data(scorer_module(cache_dir), data, MARK)


def scorer_module(cache_dir: Path | None = None) -> bytes:
    """Return the scorer, which has no model; it is compiled where the cache does not have it.

    Raises ToolchainMissing, BuildFailed.
    """
    with tempfile.TemporaryDirectory(prefix="wasmline-scorer-") as folder:
        output = Path(folder) / "scorer.wasm"
        build(load_project(scorer_folder()), output=output, cache_dir=cache_dir)
        return output.read_bytes()


def scorer_folder() -> Path:
    """Return the scorer's project: inside the installed package, or in the checkout it runs from."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "model_scorer", package.parents[1] / "wasm_modules" / "model_scorer"):
        if folder.is_dir():
            return folder
    raise ToolchainMissing(
        "the sources of the scorer are not installed: install wasmline again",
        install="pip install --force-reinstall wasmline",
    )
