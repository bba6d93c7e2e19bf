"""Runs that are started again, and the pauses before."""

import pytest

from wasmline import errors
from wasmline.job_specs import JobReport, JobState
from wasmline.restart_policy import RESTART_ERRORS, TRANSIENT_ERRORS, RestartPolicy, is_restartable, is_transient


@pytest.mark.parametrize(
    "error",
    ["BrokerUnavailable", "CommitFailed", "HangingTransactionEnded", "JobFailed", "PortInUse", "Py4JJavaError", None],
)
def test_an_error_that_may_pass_is_followed_by_a_restart(error: str | None) -> None:
    assert is_transient(error)
    assert is_restartable(JobReport.now("j", "r", JobState.FAILED, error=error))


@pytest.mark.parametrize(
    "error", ["Fenced", "ProgressLost", "InvalidJob", "DeploymentNotFound", "TooManyFailures", "PrerequisiteMissing"]
)
def test_an_error_that_no_retry_cures_is_not(error: str) -> None:
    assert not is_transient(error)
    assert not is_restartable(JobReport.now("j", "r", JobState.FAILED, error=error))


@pytest.mark.parametrize("error", sorted(RESTART_ERRORS))
def test_a_stream_is_started_again_where_waiting_helps_though_no_retry_of_a_task_does(error: str) -> None:
    assert not is_transient(error)
    assert is_restartable(JobReport.now("j", "r", JobState.FAILED, error=error))


@pytest.mark.parametrize("state", [each for each in JobState if each is not JobState.FAILED])
def test_only_a_failed_run_is_started_again(state: JobState) -> None:
    assert not is_restartable(JobReport.now("j", "r", state))


def test_the_errors_that_a_new_process_may_cure_are_in_the_tree() -> None:
    for name in TRANSIENT_ERRORS | RESTART_ERRORS:
        assert issubclass(getattr(errors, name), errors.WasmlineError)


@pytest.mark.parametrize("name", ["annotations", "Mapping", "ClassVar", "__doc__"])
def test_a_name_of_the_module_that_is_no_error_is_foreign(name: str) -> None:
    assert is_transient(name)


def test_the_pauses_double_up_to_a_limit() -> None:
    policy = RestartPolicy(first_delay_s=1, max_delay_s=10)
    assert [policy.delay_s(attempts) for attempts in range(7)] == [1, 1, 2, 4, 8, 10, 10]
    assert policy.delay_s(10**9) == 10
