"""Partitions that make no progress between two statuses of a job."""

from typing import Any, Literal

import pytest

from wasmline.control import Deployment, DeploymentSpec, JobOrder, JobStatus, partition_stalls
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.partition_status import PartitionStatus


def status(run: str = "run-1", report: JobState | None = JobState.RUNNING, **changes: Any) -> JobStatus:
    spec = JobSpec(job="j", run=run, storage="s", stream=StreamSpec(transform="t", trigger_interval="1 second"))
    fields: dict[str, Any] = {"state": "running", "offset": 7, "lag": 3, "records_in": 7, **changes}
    partition = PartitionStatus(
        job="j", transform="t", topic="in", partition=0, digest="d", generation=1, rate=0, since_offset=0, updated_ms=1,
        **fields,
    )  # fmt: skip
    last = JobReport.now("j", run, report) if report else None
    return JobStatus(order=JobOrder(spec=spec, wanted="running"), report=last, partitions=(partition,))


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        ({}, "no batch or lease has read it"),
        ({"lag": 9}, "no batch or lease has read it"),
        ({"state": "paused"}, "its state is paused"),
        ({"stuck_keys": 2, "retries": 11}, "2 keys are stuck, after 11 retries"),
    ],
)
def test_a_partition_that_stands_still_is_found_with_its_reason(later: dict[str, Any], reason: str) -> None:
    (stall,) = partition_stalls(status(), status(**later))
    assert (stall.partition, stall.offset, stall.reason) == (0, 7, reason)


@pytest.mark.parametrize(
    "later", [{"offset": 8}, {"records_in": 8}, {"lag": 0}, {"lost_offsets": 1}, {"run": "run-2"}], ids=str
)
def test_progress_is_no_stall(later: dict[str, Any]) -> None:
    assert not list(partition_stalls(status(), status(**later)))


@pytest.mark.parametrize("report", [None, *(state for state in JobState if state is not JobState.RUNNING)])
def test_the_statuses_of_the_run_before_are_no_stall_of_one_that_starts(report: JobState | None) -> None:
    assert not list(partition_stalls(status(report=report), status()))
    assert not list(partition_stalls(status(), status(report=report)))


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("running", "2 keys are stuck, after 0 retries"),
        ("paused", "deployment t is paused: 60% of the records failed"),
    ],
)
def test_a_paused_deployment_is_the_reason(state: Literal["running", "paused"], reason: str) -> None:
    spec = DeploymentSpec(
        name="t", version="1.0.0", digest="sha256:" + "0" * 64, input_topic="in", output_topics=("out",)
    )
    deployment = Deployment(spec=spec, generation=1, state=state, updated_ms=1, reason="60% of the records failed")
    (stall,) = partition_stalls(status(), status(stuck_keys=2), deployment)
    assert stall.reason == reason


def test_records_that_have_just_come_are_no_stall() -> None:
    assert not list(partition_stalls(status(lag=0), status()))
