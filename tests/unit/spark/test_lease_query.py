"""The end of a driver's leases."""

from types import SimpleNamespace
from typing import Any

import pytest

from wasmline.control import DriverClaim
from wasmline.job_specs import JobSpec
from wasmline.spark.parallel.query import LeaseQuery


class Jobs:
    """The newest claim of a job, and the stops that were requested."""

    def __init__(self, driver: str | None) -> None:
        self.claim = None if driver is None else DriverClaim(
            run="run-1", driver=driver, checkpoint="c", batch_id=1, deployment=None
        )  # fmt: skip
        self.stopped: list[tuple[str, str, str]] = []

    def last_batch(self, job: str) -> DriverClaim | None:
        return self.claim

    def stop(self, job: str, run: str, *, by: str) -> None:
        self.stopped.append((job, run, by))


@pytest.mark.parametrize(("driver", "stopped"), [("mine", True), (None, True), ("newer", False)])
def test_a_driver_stops_its_own_leases_and_not_those_of_a_newer_one_of_its_run(
    driver: str | None, stopped: bool
) -> None:
    query: Any = object.__new__(LeaseQuery)
    jobs = Jobs(driver)
    spec = JobSpec(job="j", run="run-1", storage="s")
    query._context = SimpleNamespace(jobs=jobs, driver="mine", job=spec)
    query.before_stop()
    assert jobs.stopped == ([("j", "run-1", "system")] if stopped else [])
