"""Runs a deployment on the batches of a Spark task, or as the ``handler`` of a key-parallel consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wasmline.pipeline.batch_stats import BatchStats
from wasmline.pipeline.failure_window import FailureWindow
from wasmline.pipeline.transform_runner import TransformRunner
from wasmline.renames import renamed

__all__ = ["BatchStats", "FailureWindow", "TransformRunner"]

if not TYPE_CHECKING:  # or no missing name would be found
    __getattr__ = renamed(__name__)
