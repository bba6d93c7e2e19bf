"""A lease before anything is connected: what ends it, and for how long its work may go on."""

import pickle
import time
from dataclasses import replace
from typing import Any

import pytest

from wasmline import clock
from wasmline.control import Deployment, DeploymentSpec, DriverClaim, JobControlState, JobOrder, LeaseWithdrawal
from wasmline.documents import encode
from wasmline.job_specs import JobSpec, StreamSpec
from wasmline.leases.lease import Lease, LeaseValidity
from wasmline.leases.timings import DEFAULT_TIMINGS

SPEC = DeploymentSpec(name="t", version="1.0.0", digest="sha256:" + "0" * 64, input_topic="in", output_topics=("out",))
DEPLOYED = Deployment(spec=SPEC, generation=3, state="running", updated_ms=0)
JOB = JobSpec(job="j", run="r", storage="s", stream=StreamSpec(transform="t", mode="parallel"))
CLAIM = DriverClaim(run="r", mode="parallel", driver="d", checkpoint="c", batch_id=7, deployment=DEPLOYED)
LEASE = Lease(
    job=JOB,
    deployment=DEPLOYED,
    driver="d",
    epoch=7,
    topic="in",
    until=time.time() + 60,
    control_offsets={},
    progress={0: 0},
)


def stream(**changes: Any) -> JobOrder:
    assert JOB.stream is not None
    return JobOrder(spec=replace(JOB, stream=replace(JOB.stream, **changes)), wanted="running")


@pytest.mark.parametrize(
    ("topic", "key", "document", "ends"),
    [
        ("_wasmline.jobs", "j", JobOrder(spec=JOB, wanted="stopped"), "a stop is wanted"),
        ("_wasmline.jobs", "j", JobOrder(spec=replace(JOB, run="r2"), wanted="running"), "a stop is wanted"),
        ("_wasmline.jobs", "j", stream(tasks=5), "the order was changed"),
        ("_wasmline.jobs", "j", JobOrder(spec=JOB, wanted="running"), None),
        ("_wasmline.jobs", "other", JobOrder(spec=JOB, wanted="stopped"), None),
        ("_wasmline.jobs", "j/batch", CLAIM, None),
        ("_wasmline.jobs", "j/batch", replace(CLAIM, batch_id=8), "the job was claimed again"),
        ("_wasmline.jobs", "j/batch", replace(CLAIM, driver="e", batch_id=-1), "the job was claimed again"),
        ("_wasmline.jobs", "j/withdrawn", LeaseWithdrawal(driver="d", epoch=7), "it was withdrawn"),
        ("_wasmline.jobs", "j/withdrawn", LeaseWithdrawal(driver="d", epoch=6), None),
        ("_wasmline.jobs", "j/withdrawn", LeaseWithdrawal(driver="e", epoch=9), None),
        ("_wasmline.deployments", "t", replace(DEPLOYED, generation=4), "generation 4 is deployed"),
        ("_wasmline.deployments", "t", replace(DEPLOYED, state="paused"), "the deployment is paused"),
        ("_wasmline.deployments", "t", DEPLOYED, None),
        ("_wasmline.deployments", "u", replace(DEPLOYED, generation=4), None),
    ],
)
def test_a_control_record_ends_the_leases_that_it_is_about(topic: str, key: str, document: Any, ends: str) -> None:
    control = JobControlState("j", "t")
    control.apply(topic, key.encode(), encode(document))
    assert LEASE.superseded(control) == ends


def test_a_lease_travels() -> None:
    assert pickle.loads(pickle.dumps(LEASE)) == LEASE


def test_the_work_on_a_lease_that_is_over_has_no_standing() -> None:
    assert LeaseValidity(time.time() + 60).held()
    assert not LeaseValidity(time.time() - 1).held()


def test_a_machine_that_was_suspended_was_frozen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's steady clock stands still meanwhile."""
    assert clock.uptime() >= time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) - 1
    tenure = LeaseValidity(time.time() + 60)
    up = clock.uptime()
    monkeypatch.setattr(clock, "uptime", lambda: up + DEFAULT_TIMINGS.renewal_timeout_s + 1)
    assert not tenure.held()


def test_whoever_was_frozen_for_long_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    tenure = LeaseValidity(time.time() + 60)
    up = clock.uptime()
    monkeypatch.setattr(clock, "uptime", lambda: up + DEFAULT_TIMINGS.renewal_timeout_s + 1)
    assert not tenure.held()
    monkeypatch.setattr(clock, "uptime", lambda: up)
    tenure.renew()
    assert not tenure.held()
