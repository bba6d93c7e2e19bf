"""The documents of the page about jobs."""

from __future__ import annotations

from dataclasses import replace

from wasmline.job_specs import JobReport, JobState
from wasmline_provider.plugin.cluster_documents import report_document


def test_a_batch_lasts_as_long_as_spark_says() -> None:
    batch = {"batch_id": 1, "records_in": 9, "records_out": 8, "duration_ms": {"addBatch": 40, "triggerExecution": 52}}
    report = replace(JobReport.now("eta", "run-1", JobState.RUNNING), result={"batches": [batch, {"batch_id": 2}]})
    assert [each["duration_ms"] for each in report_document(report)["batches"]] == [52, None]
