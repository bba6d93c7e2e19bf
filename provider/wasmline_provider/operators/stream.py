"""Runs a deployed transform over its topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from wasmline_provider.operators.job import SparkJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.jobs import JobReport, JobSpec


class SparkStreamOperator(SparkJobOperator):
    """Applies a deployment to its input topic with Structured Streaming: until caught up, or for ever.

    Example::

        SparkStreamOperator(
            task_id="stream",
            job="delivery-distance",
            transform="delivery-distance",
            storage="s3://bucket/wasmline",
            trigger_interval="1 second",
            deferrable=True,
        )

    Returns ``records_in``, ``records_out``, ``dead_letters`` by reason, ``batches``, ``partitions``, ``digest`` and
    ``generation``. For the other parameters see SparkJobOperator.

    :param transform: the name of a deployment.
    :param trigger_interval: the pause between batches, as Spark writes it; None ends the run when it has caught up with
        the end that the topic had at its start. A run for ever succeeds when it is stopped.
    :param starting_offsets: where the job's very first run begins; later runs continue.
    :param max_offsets_per_trigger: the most records in a batch.
    """

    template_fields: Sequence[str] = (
        *SparkJobOperator.template_fields,
        "transform",
        "trigger_interval",
        "starting_offsets",
        "max_offsets_per_trigger",
    )

    def __init__(
        self,
        *,
        transform: str,
        trigger_interval: str | None = None,
        starting_offsets: Literal["earliest", "latest"] = "earliest",
        max_offsets_per_trigger: int | str = 100_000,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.transform = transform
        self.trigger_interval = trigger_interval
        self.starting_offsets = starting_offsets
        self.max_offsets_per_trigger = max_offsets_per_trigger

    @property
    def may_be_stopped(self) -> bool:
        return bool(self.trigger_interval)

    def spec(self, context: Context) -> JobSpec:
        from wasmline.jobs import JobSpec, StreamSpec

        stream = StreamSpec(
            transform=self.transform,
            trigger_interval=self.trigger_interval or None,
            starting_offsets=self.starting_offsets,
            max_offsets_per_trigger=int(self.max_offsets_per_trigger),
        )
        return JobSpec(job=self.job, run="", storage=self.storage, stream=stream)

    def result(self, report: JobReport) -> dict[str, Any]:
        # A stopped run may have made no batch, and its report then has no totals.
        return {**report.result, "batches": len(report.result.get("batches", []))}
