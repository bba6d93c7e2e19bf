"""What a driver adds to its reports."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from wasmline.job_specs import JobReport, JobState
from wasmline.spark.driver_context import DriverContext


@pytest.mark.parametrize(("ui", "told"), [("http://driver:4040", "http://driver:4040"), (None, "")])
def test_a_report_names_the_driver_s_ui_until_the_run_has_ended(ui: str | None, told: str) -> None:
    written: list[JobReport] = []
    client = SimpleNamespace(write_report=written.append)
    parts: dict[str, Any] = dict.fromkeys((each.name for each in fields(DriverContext)), client)
    context = DriverContext(**{**parts, "spark": SimpleNamespace(sparkContext=SimpleNamespace(uiWebUrl=ui))})
    for state in (JobState.RUNNING, JobState.SUCCEEDED):
        context.write_report(JobReport.now("j", "r", state))
    assert [(each.state, each.spark_ui) for each in written] == [("running", told), ("succeeded", "")]
