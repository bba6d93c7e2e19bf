"""Trains models on records of a topic: datasets, rows, trees, metrics, gate, versions and promotions.

The engine is independent of the data; a TrainSpec defines the input and the prediction. Spark prepares the rows; the
trees are trained in the driver, where they fit many times over.
"""

from wasmline.training.boosting import TreeParameters
from wasmline.training.champion_deployment import deploy_champion, require_champion
from wasmline.training.correlations import Correlation, correlate
from wasmline.training.dataset_slice import Dataset, resolve
from wasmline.training.evaluate import Histogram, Metrics
from wasmline.training.feature_encoding import FeatureLayout
from wasmline.training.gate import Decision, ErrorComparison, GatePolicy, decide
from wasmline.training.job import RowCounts, TrainResult, train_on
from wasmline.training.kept_rows import KeptRows, KeptSlice
from wasmline.training.model_comparison import ModelComparison, compare_versions
from wasmline.training.model_compiler import compile_model
from wasmline.training.model_decision import promote
from wasmline.training.model_overview import DecisionOverview, ModelOverview, ModelVersionOverview
from wasmline.training.model_proof import prove
from wasmline.training.model_publisher import PublishedModel, compile_proven, model_reference, publish_model
from wasmline.training.model_reader import ModelReader
from wasmline.training.model_rebuild import RebuiltModel, rebuild_model
from wasmline.training.model_registry import ModelRecord, ModelRegistry, ModelVersion
from wasmline.training.model_rollback import RollbackPlan, RollbackResult, plan_rollback, roll_back
from wasmline.training.model_serving import ModelServing, published_module, require_serving
from wasmline.training.paired_bootstrap import Interval
from wasmline.training.prepare import Prepared, prepare, prepare_rows, read_slice, rows_of, usable_rows
from wasmline.training.promotion_log import PromotionLog
from wasmline.training.promotion_record import Promotion
from wasmline.training.record_source import read_records
from wasmline.training.recorded_slice import RecordedSlice
from wasmline.training.retention import retention_warnings
from wasmline.training.retrain_monitor import RetrainEvent, RetrainMonitor
from wasmline.training.run_slice import SkipResult, slice_of_run, topic_offsets
from wasmline.training.slice_decision import NewSlice, TopicOffsets, decide_slice, passed_text
from wasmline.training.slice_log import SliceLog
from wasmline.training.slice_windows import slice_windows
from wasmline.training.training_run import run_training
from wasmline.training.window_choice import Candidate, Window
from wasmline.wasm.model_section import ModelProof

__all__ = [
    "Candidate",
    "Correlation",
    "Dataset",
    "Decision",
    "DecisionOverview",
    "ErrorComparison",
    "FeatureLayout",
    "GatePolicy",
    "Histogram",
    "Interval",
    "KeptRows",
    "KeptSlice",
    "Metrics",
    "ModelComparison",
    "ModelOverview",
    "ModelProof",
    "ModelReader",
    "ModelRecord",
    "ModelRegistry",
    "ModelServing",
    "ModelVersion",
    "ModelVersionOverview",
    "NewSlice",
    "Prepared",
    "Promotion",
    "PromotionLog",
    "PublishedModel",
    "RebuiltModel",
    "RecordedSlice",
    "RetrainEvent",
    "RetrainMonitor",
    "RollbackPlan",
    "RollbackResult",
    "RowCounts",
    "SkipResult",
    "SliceLog",
    "TopicOffsets",
    "TrainResult",
    "TreeParameters",
    "Window",
    "compare_versions",
    "compile_model",
    "compile_proven",
    "correlate",
    "decide",
    "decide_slice",
    "deploy_champion",
    "model_reference",
    "passed_text",
    "plan_rollback",
    "prepare",
    "prepare_rows",
    "promote",
    "prove",
    "publish_model",
    "published_module",
    "read_records",
    "read_slice",
    "rebuild_model",
    "require_champion",
    "require_serving",
    "resolve",
    "retention_warnings",
    "roll_back",
    "rows_of",
    "run_training",
    "slice_of_run",
    "slice_windows",
    "topic_offsets",
    "train_on",
    "usable_rows",
]
