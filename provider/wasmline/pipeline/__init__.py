"""A deployment at work: on the batches of a Spark task, or as the ``handler`` of a key-parallel consumer."""

from __future__ import annotations

from wasmline.pipeline.tally import Tally
from wasmline.pipeline.transform import TransformPipeline
from wasmline.pipeline.window import FailureWindow

__all__ = ["FailureWindow", "Tally", "TransformPipeline"]
