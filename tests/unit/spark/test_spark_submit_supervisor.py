"""The supervisor of a spark-submit: exit statuses in words, and the report on a cluster that is away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from wasmline.errors import BrokerUnavailable, HangingTransaction, KafkaError, NotAuthorized
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka import KafkaConfig
from wasmline.spark import spark_submit_supervisor
from wasmline.spark.spark_submit_supervisor import describe_exit_status, supervise

COMMAND = ["sh", "-c", "echo out of memory; kill -9 $$"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with status 0"),
        (1, "ended with status 1"),
        (127, "ended with status 127"),
        (128, "ended with status 128"),
        (-9, "was killed by SIGKILL (out of memory, or kill -9)"),
        (-15, "was killed by SIGTERM"),
        (-200, "was killed by signal 200"),
        (137, "ended with status 137, because its driver was killed by SIGKILL (out of memory, or kill -9)"),
        (143, "ended with status 143, because its driver was killed by SIGTERM"),
        (255, "ended with status 255"),
    ],
)
def test_a_status_names_the_signal_that_ended_the_driver(status: int, words: str) -> None:
    assert describe_exit_status(status) == words


class Cluster:
    """A job topic that fails as it is told before it keeps a report."""

    def __init__(self, failures: list[KafkaError], standing: JobReport | None = None) -> None:
        self.failures: Iterator[KafkaError] = iter(failures)
        self.kept = standing
        self.written: list[JobReport] = []

    def __call__(self, config: KafkaConfig) -> "Cluster":
        return self

    def report(self, job: str, run: str) -> JobReport | None:
        for failure in self.failures:
            raise failure
        return self.kept

    def write_report(self, report: JobReport) -> None:
        self.written.append(report)
        if report.state is not JobState.STARTING:
            self.kept = report

    def close(self) -> None:
        pass


def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    monkeypatch.setattr(spark_submit_supervisor, "JobTopic", cluster)
    monkeypatch.setattr(spark_submit_supervisor, "REPORT_RETRY_DELAY_S", 0.0)
    config = KafkaConfig({"bootstrap.servers": "nowhere:1"})
    return supervise(config, "j", "run-1", COMMAND, folder / "driver.log")


def test_whatever_a_cluster_says_while_it_comes_back_the_driver_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = BrokerUnavailable("away", bootstrap_servers="nowhere:1")
    hangs = HangingTransaction("it hangs", transactional_id="t", producer_id=1, partitions=())
    cluster = Cluster([away] * 3 + [hangs, NotAuthorized("not yet")])
    assert run(cluster, monkeypatch, tmp_path) == -9
    assert cluster.kept is not None
    assert (cluster.kept.state, cluster.kept.error) == (JobState.FAILED, "JobFailed")
    assert "was killed by SIGKILL" in cluster.kept.message
    assert cluster.kept.message.endswith("driver.log ends with:\nout of memory")
    told = [record.getMessage() for record in caplog.records]
    assert [line.count(word) for line, word in zip(told, ["away", "it hangs", "not yet"], strict=True)] == [1, 1, 1]


def test_a_cluster_that_stays_away_is_given_up_with_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spark_submit_supervisor, "REPORT_TIMEOUT_S", -1.0)
    cluster = Cluster([BrokerUnavailable("away", bootstrap_servers="nowhere:1")] * 100)
    assert run(cluster, monkeypatch, tmp_path) == -9
    assert cluster.kept is None
    assert "the report of job j, run run-1, was not written: away" in caplog.text


def test_the_start_is_reported_before_the_command_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster = Cluster([])
    run(cluster, monkeypatch, tmp_path)
    start, end = cluster.written
    assert start.is_driver_starting
    assert end.state is JobState.FAILED


@pytest.mark.parametrize("state", list(JobState))
def test_the_final_report_of_the_driver_itself_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: JobState
) -> None:
    own = JobReport.now("j", "run-1", state, "its own")
    cluster = Cluster([], own)
    run(cluster, monkeypatch, tmp_path)
    assert cluster.kept is not None
    assert (cluster.kept == own) is state.final


def test_the_report_of_a_driver_that_was_killed_has_its_last_totals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cluster = Cluster([], JobReport.now("j", "run-1", JobState.RUNNING, result={"records_in": 7}))
    run(cluster, monkeypatch, tmp_path)
    assert cluster.kept is not None
    assert (cluster.kept.state, cluster.kept.result) == (JobState.FAILED, {"records_in": 7})
