"""Builds the modules that are measured: the scorer, with its trees as data or as generated code."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import tl2cgen
import treelite
from model.cases import CONTEXT, MODULES, Case, batch

from wasmline.build import build, load_project
from wasmline.training.model_data import MARK
from wasmline.wasm import TransformRuntime
from wasmline.wasm.binary import add_data

MATRIX_ROWS = 1_000
"""Rows in a record of the module that has no JSON."""

Predictions = npt.NDArray[np.float32]
Scorer = Callable[[], pa.RecordBatch]
_FOLDER = Path(__file__).parent


def scorer(case: Case, *, is_generated: bool = False, is_matrix: bool = False) -> Scorer:
    """Return what predicts the case's records, or its matrix, once per call, in a guest of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "scorer"
        shutil.copytree(MODULES / "model_scorer", folder)
        if is_generated:
            shutil.copy(_FOLDER / "generated_trees/trees.hpp", folder / "src")
            (folder / "src/generated.cc").write_text(_generated_code(case.model))
        if is_matrix:
            shutil.copy(_FOLDER / "matrix_scorer/main.cc", folder / "src")
        wasm = Path(build(load_project(folder)).path).read_bytes()
    instance = TransformRuntime().compile(add_data(wasm, case.data, MARK)).instantiate(CONTEXT)
    records = batch(_matrix_records(case) if is_matrix else case.records)
    return lambda: instance.transform(records).outputs


def _matrix_records(case: Case) -> list[bytes]:
    starts = range(0, len(case.matrix), MATRIX_ROWS)
    return [np.ascontiguousarray(case.matrix[start : start + MATRIX_ROWS]).tobytes() for start in starts]


def matrix_predictions(outputs: pa.RecordBatch) -> Predictions:
    """Return the predictions of a module that was built with ``is_matrix``."""
    return np.concatenate([np.frombuffer(value, np.float32) for value in outputs.column("value").to_pylist()])


def _generated_code(model: bytes) -> str:
    """Return tl2cgen's C, with additions as XGBoost does them: in single precision, the base score first."""
    with tempfile.TemporaryDirectory() as temporary:
        trees: Any = treelite.frontend.from_xgboost_json(model.decode())
        tl2cgen.generate_c_code(trees, dirpath=temporary, params={}, verbose=False)
        code = (Path(temporary) / "main.c").read_text()
        header = (Path(temporary) / "header.h").read_text()
    code = re.sub(r"(result\[0\] \+= [^;]+);", r"\1F;", code)
    code, count = re.subn(r"// Apply base_scores\n  result\[0\] \+= [^;]+;", "", code)
    if count != 1:
        raise SystemExit("tl2cgen's code has no base score where it was expected")
    return code.replace('#include "header.h"', header)
