"""Whether a run has a driver, over reports in memory and a clock of the test's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from wasmline.control import is_live, run_liveness
from wasmline.job_specs import DRIVER_HEARTBEAT_TIMEOUT_S, HEARTBEAT_INTERVAL_S, JobReport, JobState

NOW_MS = 1_800_000_000_000

AN_HOUR_MS = 3_600_000


class Reports:
    """The reports of a run, and the time: ``sleep`` lets it pass, and a driver that lives sends heartbeats."""

    def __init__(
        self, last: JobReport | None, *, is_alive: bool = False, reading_s: dict[int, float] | None = None
    ) -> None:
        """``reading_s``: seconds that readings take, by their number; no heartbeat is written meanwhile."""
        self.now_s = 0.0
        self._held_up_s = 0.0
        self._reading_s = reading_s or {}
        self._readings = 0
        self._last = last
        self._is_alive = is_alive

    def report(self, job: str, run: str) -> JobReport | None:
        takes_s = self._reading_s.get(self._readings, 0.0)
        self._readings += 1
        self.now_s += takes_s
        self._held_up_s += takes_s
        if self._last is None or not self._is_alive:
            return self._last
        beats = int((self.now_s - self._held_up_s) // HEARTBEAT_INTERVAL_S)
        return replace(self._last, updated_ms=self._last.updated_ms + int(beats * HEARTBEAT_INTERVAL_S * 1_000))

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def seconds_to(monkeypatch: pytest.MonkeyPatch, reports: Reports) -> tuple[bool, float]:
    """Return whether the run is live, and the seconds until that was decided."""
    monkeypatch.setattr(run_liveness, "now_ms", lambda: NOW_MS + int(reports.now_s * 1_000))
    monkeypatch.setattr(time, "sleep", reports.sleep)
    monkeypatch.setattr(time, "monotonic", lambda: reports.now_s)
    jobs: Any = reports
    return is_live(jobs, "j", "r"), reports.now_s


def of(state: JobState, age_ms: int, message: str = "") -> JobReport:
    return JobReport(job="j", run="r", state=state, updated_ms=NOW_MS - age_ms, message=message)


@pytest.mark.parametrize("age_ms", [0, 14_000])
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.STARTING])
def test_a_recent_report_is_enough(monkeypatch: pytest.MonkeyPatch, state: JobState, age_ms: int) -> None:
    assert seconds_to(monkeypatch, Reports(of(state, age_ms))) == (True, 0)


@pytest.mark.parametrize("skew_ms", [AN_HOUR_MS, -AN_HOUR_MS])
def test_a_driver_whose_clock_differs_is_found_alive_by_its_next_heartbeat(
    monkeypatch: pytest.MonkeyPatch, skew_ms: int
) -> None:
    live, after_s = seconds_to(monkeypatch, Reports(of(JobState.RUNNING, skew_ms), is_alive=True))
    assert live
    assert after_s <= HEARTBEAT_INTERVAL_S + run_liveness.POLL_INTERVAL_S


@pytest.mark.parametrize("last", [of(JobState.RUNNING, 40_000), of(JobState.STARTING, 40_000)])
def test_a_driver_or_an_order_without_another_report_is_dead_after_the_time_out(
    monkeypatch: pytest.MonkeyPatch, last: JobReport
) -> None:
    live, after_s = seconds_to(monkeypatch, Reports(last))
    assert not live
    assert 0 <= after_s - DRIVER_HEARTBEAT_TIMEOUT_S <= 2 * run_liveness.POLL_INTERVAL_S


@pytest.mark.parametrize("reading_s", [{1: 60.0}, {1: 9.0, 2: 9.0, 3: 9.0, 4: 9.0}], ids=["blocked", "slow"])
def test_the_time_that_a_reading_takes_is_no_missing_heartbeat(
    monkeypatch: pytest.MonkeyPatch, reading_s: dict[int, float]
) -> None:
    last = of(JobState.RUNNING, 40_000)
    assert seconds_to(monkeypatch, Reports(last, is_alive=True, reading_s=reading_s))[0]
    live, after_s = seconds_to(monkeypatch, Reports(last, reading_s=reading_s))
    assert not live
    took_s = DRIVER_HEARTBEAT_TIMEOUT_S + sum(reading_s.values())
    assert 0 <= after_s - took_s <= 3 * run_liveness.POLL_INTERVAL_S


def test_the_time_in_which_this_process_was_frozen_with_the_driver_is_no_missing_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports = Reports(of(JobState.RUNNING, 40_000), is_alive=True)
    monkeypatch.setattr(Reports, "sleep", frozen_once(Reports.sleep))
    assert seconds_to(monkeypatch, reports)[0]


def frozen_once(sleep: Callable[[Reports, float], None]) -> Callable[[Reports, float], None]:
    freezes = [3_600.0]

    def frozen(reports: Reports, seconds: float) -> None:
        sleep(reports, seconds)
        if freezes:
            held_up_s = freezes.pop()
            reports.now_s += held_up_s
            reports._held_up_s += held_up_s

    return frozen


@pytest.mark.parametrize(("age_ms", "is_expected"), [(119_000, True), (121_000, False)])
def test_spark_has_two_minutes_to_start(monkeypatch: pytest.MonkeyPatch, age_ms: int, is_expected: bool) -> None:
    starting = Reports(of(JobState.STARTING, age_ms, "spark-submit started"))
    assert seconds_to(monkeypatch, starting) == (is_expected, 0)


@pytest.mark.parametrize("last", [None, of(JobState.FAILED, 0), of(JobState.STOPPED, 0)])
def test_a_run_that_has_ended_is_not_live(monkeypatch: pytest.MonkeyPatch, last: JobReport | None) -> None:
    assert seconds_to(monkeypatch, Reports(last)) == (False, 0)
