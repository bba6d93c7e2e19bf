"""The end of a driver's leases."""

from types import SimpleNamespace
from typing import Any

import pytest

from wasmline.control import DriverClaim, LeaseWithdrawal
from wasmline.job_specs import JobSpec
from wasmline.spark.parallel.query import LeaseQuery


class Jobs:
    """The newest claim of a job, and the withdrawals of its driver."""

    def __init__(self, driver: str | None) -> None:
        self.claim = None if driver is None else DriverClaim(
            run="run-1", driver=driver, checkpoint="c", batch_id=1, deployment=None
        )  # fmt: skip
        self.withdrawn: list[LeaseWithdrawal] = []

    def last_claim(self, job: str) -> DriverClaim | None:
        return self.claim

    def write_withdrawal(self, withdrawal: LeaseWithdrawal) -> None:
        self.withdrawn.append(withdrawal)


@pytest.mark.parametrize(("driver", "withdraws"), [("mine", True), (None, False), ("newer", False)])
def test_a_driver_ends_its_own_leases_and_neither_its_order_nor_those_of_a_newer_one_of_its_run(
    driver: str | None, withdraws: bool
) -> None:
    query: Any = object.__new__(LeaseQuery)
    jobs = Jobs(driver)
    spec = JobSpec(job="j", run="run-1", storage="s")
    query._context = SimpleNamespace(jobs=jobs, records=jobs, driver="mine", job=spec)
    query.before_stop()
    assert jobs.withdrawn == ([LeaseWithdrawal(driver="mine", epoch=2, max_tasks=0)] if withdraws else [])
