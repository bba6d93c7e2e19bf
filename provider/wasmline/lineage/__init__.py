"""Traces a record back to its sources, and names the modules and models that made it."""

from wasmline.lineage.explanation import ExplainedRecord, ModelOrigin, ModuleOrigin, RecordPosition
from wasmline.lineage.explanation_text import text_lines
from wasmline.lineage.record_explainer import explain

__all__ = ["ExplainedRecord", "ModelOrigin", "ModuleOrigin", "RecordPosition", "explain", "text_lines"]
