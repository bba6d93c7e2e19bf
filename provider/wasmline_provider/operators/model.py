"""Operators that train models on the outputs of a transform and promote them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from wasmline_provider.operators.job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.job_specs import JobReport, JobSpec

TOO_LARGE = ("sample", "residuals", "correlations")
"""Data for plots: in the job's report, not in XCom."""


class TrainModelOperator(SparkJobOperator):
    """Trains a model on an exact slice of a topic, stores it as a version, and compares it with the live one.

    Example::

        TrainModelOperator(
            task_id="train",
            job="delivery-eta",
            storage="s3://bucket/wasmline",
            train={
                "model": "delivery-eta",
                "topic": "deliveries.features",
                "models": "s3://bucket/models",
                "fields": {"id": "string", "distance_km": "double", "time_min": "double"},
                "features": ["distance_km"],
                "target": "time_min",
                "identity": "id",
                "since_ms": "{{ (logical_date - macros.timedelta(days=7)).int_timestamp * 1000 }}",
            },
        )

    Returns ``model``, ``version``, ``digest``, ``dataset`` with the offsets, ``metrics``, ``champion`` with its metrics
    on the same holdout, and the gate's ``decision``. Nothing is promoted yet. For the other parameters see
    SparkJobOperator.

    :param train: the fields of ``wasmline.job_specs.TrainSpec``; numbers may be text, as rendered by templates.
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, "train")
    template_fields_renderers = {**SparkJobOperator.template_fields_renderers, "train": "json"}

    def __init__(self, *, train: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.train = train

    def spec(self, context: Context) -> JobSpec:
        import msgspec

        from wasmline.job_specs import JobSpec, TrainSpec

        return JobSpec(
            job=self.job, run="", storage=self.storage, train=msgspec.convert(self.train, TrainSpec, strict=False)
        )

    def result(self, report: JobReport) -> dict[str, Any]:
        return {name: value for name, value in report.result.items() if name not in (*TOO_LARGE, "run")}


class PromoteModelOperator(BaseOperator):
    """Promotes a trained model to champion, or keeps the live one: the decision is recorded with its reason.

    The training measured both on the same held-out rows. If another model went live since then, the decision is void,
    and the task fails with Conflict.

    Example::

        PromoteModelOperator(task_id="promote", trained=train.output, models="s3://bucket/models")

    Returns ``model``, ``version``, ``decision`` (promote or keep), ``reason``, the ``champion`` before, ``live`` after.

    :param trained: the result of TrainModelOperator.
    :param models: the folder or fsspec URL of the model registry.
    """

    template_fields: Sequence[str] = ("trained", "models")
    template_fields_renderers = {"trained": "json"}
    ui_color = "#e4f7ea"

    def __init__(self, *, trained: Any, models: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.trained = trained
        self.models = models

    def execute(self, context: Context) -> dict[str, Any]:
        import msgspec

        from wasmline.training import Decision, Metrics, promote
        from wasmline_provider.asset_events import record

        trained = self.trained
        promotion = promote(
            self.models,
            trained["model"],
            trained["version"],
            msgspec.convert(trained["decision"], Decision),
            champion=trained["champion"],
            metrics=msgspec.convert(trained["metrics"], Metrics),
            champion_metrics=msgspec.convert(trained["champion_metrics"], Metrics | None),
            run=trained["run"],
        )
        self.log.info("%s@%s: %s. %s", promotion.model, promotion.version, promotion.decision, promotion.reason)
        result = {
            "model": promotion.model,
            "version": promotion.version,
            "decision": promotion.decision,
            "reason": promotion.reason,
            "champion": promotion.champion,
            "live": promotion.live,
        }
        record(context, self.outlets, result)
        return result
