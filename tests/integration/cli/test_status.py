"""``wasmline status`` on a real broker: what drivers wrote, as people and machines read it, once and live."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.streams.identity_transform import deploy_identity
from wasmline.cli import main
from wasmline.clock import now_ms
from wasmline.control import JobTopic, StatusTopic, control_topics
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import RecordWriter, produce_all
from wasmline.partition_status import PartitionStatus
from wasmline.testing.kafka import RunningKafka

WASMLINE = str(Path(sys.executable).with_name("wasmline"))


class Driver:
    """A driver's hand: a job that runs over two partitions with ten records each, and what is said of it."""

    def __init__(self, kafka: RunningKafka) -> None:
        self.topic = kafka.topic(partitions=2)
        produce_all(kafka.config, self.topic, ((b"%d" % n, b"v", None, None) for n in range(20)))
        stream = StreamSpec(
            transform=f"t-{uuid.uuid4()}", mode="parallel", delivery="exactly_once", trigger_interval="1 second"
        )
        self.spec = JobSpec(job=f"job-{uuid.uuid4()}", run="run-1", storage="s", stream=stream)
        self.jobs, self.status = JobTopic(kafka.config), StatusTopic(kafka.config)
        self.jobs.submit(self.spec)

    def report(self, state: JobState, message: str = "", error: str | None = None) -> None:
        self.jobs.write_report(JobReport.now(self.spec.job, self.spec.run, state, message, error=error))

    def tell(self, *partitions: PartitionStatus) -> None:
        self.status.write(partitions)

    def partition(self, number: int, offset: int) -> PartitionStatus:
        return PartitionStatus(
            job=self.spec.job,
            transform="t",
            topic=self.topic,
            partition=number,
            digest="d",
            generation=3,
            state="running",
            offset=offset,
            lag=999,
            rate=12.5,
            since_offset=1,
            updated_ms=now_ms() - 5_000,
            records_in=offset,
            records_out=2 * offset,
            dead_letters={"late": number + 1, "no amount": 2},
            in_flight=4,
            retries=6,
            stuck_keys=1,
        )

    def close(self) -> None:
        self.jobs.close()
        self.status.close()


@pytest.fixture
def driver(kafka: RunningKafka) -> Iterator[Driver]:
    made = Driver(kafka)
    yield made
    made.close()


@pytest.fixture
def environment(kafka: RunningKafka) -> dict[str, str]:
    return {**os.environ, "WASMLINE_KAFKA_CONFIG": json.dumps({"bootstrap.servers": kafka.bootstrap_servers})}


def shown(environment: dict[str, str], *arguments: str) -> str:
    result = CliRunner().invoke(main, ["status", *arguments], env=environment)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_run_and_each_of_its_partitions_are_shown_with_their_lag_as_of_now(
    driver: Driver, environment: dict[str, str]
) -> None:
    driver.tell(driver.partition(0, 2), driver.partition(1, 3))
    driver.report(JobState.RUNNING, "catching up")
    first, counts, head, *rows, total = shown(environment, driver.spec.job).splitlines()
    assert first.startswith(f"{driver.spec.job}, running, mode parallel, exactly once, run run-1, ")
    assert first.endswith(" ago, catching up")
    assert counts == "5 records in, 10 out"
    assert [cell.strip() for cell in head.split("  ") if cell] == [
        "PARTITION", "GENERATION", "STATE", "OFFSET", "LAG", "RATE", "IN FLIGHT", "STUCK KEYS", "RETRIES", "SINCE",
        "AGE", "DEAD LETTERS",
    ]  # fmt: skip
    cells = [[cell.strip() for cell in row.split("  ") if cell] for row in rows]
    assert [row[:4] for row in cells] == [["0", "3", "running", "2"], ["1", "3", "running", "3"]]
    assert sum(int(row[4]) for row in cells) == 20 - 5
    assert [row[5:10] for row in cells] == [["12.5", "4", "1", "6", "1"]] * 2
    assert [row[11] for row in cells] == ["3 (1 late, 2 no amount)", "4 (2 late, 2 no amount)"]
    assert [cell.strip() for cell in total.split("  ") if cell] == [
        "TOTAL", "15", "25.0", "8", "2", "12", "7 (4 no amount, 3 late)",
    ]  # fmt: skip


def test_machines_get_the_same_as_json(driver: Driver, environment: dict[str, str]) -> None:
    driver.tell(driver.partition(0, 2), driver.partition(1, 3))
    driver.report(JobState.RUNNING)
    found = json.loads(shown(environment, driver.spec.job, "--json"))
    assert (found["state"], found["wanted"], found["mode"]) == ("running", "running", "parallel")
    assert found["totals"]["dead_letters"] == {"no amount": 4, "late": 3}
    assert found["totals"]["lag"] == 15
    assert [(each["partition"], each["offset"], each["in_flight"]) for each in found["partitions"]] == [
        (0, 2, 4),
        (1, 3, 4),
    ]


def test_a_run_that_failed_and_is_to_stay_stopped_says_so(driver: Driver, environment: dict[str, str]) -> None:
    driver.report(JobState.FAILED, "the JVM was killed", "JobFailed")
    driver.jobs.stop(driver.spec.job, driver.spec.run)
    assert ", failed, to stay stopped, " in shown(environment, driver.spec.job).splitlines()[0]
    assert json.loads(shown(environment, driver.spec.job, "--json"))["stopped_by"] == "user"


def test_what_a_killed_driver_said_last_is_not_shown_as_running(driver: Driver, environment: dict[str, str]) -> None:
    driver.tell(driver.partition(0, 2))
    driver.report(JobState.FAILED, "the JVM was killed", "JobFailed")
    first, _, _, row, _ = shown(environment, driver.spec.job).splitlines()
    assert first.endswith("ago, JobFailed: the JVM was killed")
    assert row.split()[2] == "stopped"


def test_partitions_of_a_topic_that_the_job_read_before_are_left_out(
    driver: Driver, kafka: RunningKafka, environment: dict[str, str]
) -> None:
    driver.tell(replace(driver.partition(1, 3), topic=kafka.topic(partitions=2), updated_ms=1), driver.partition(0, 2))
    found = json.loads(shown(environment, driver.spec.job, "--json"))
    assert [each["partition"] for each in found["partitions"]] == [0]


def test_a_job_that_nobody_ordered_is_an_error(environment: dict[str, str]) -> None:
    result = CliRunner().invoke(main, ["status", "nobody"], env=environment)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no job 'nobody'" in result.stderr


def test_watching_tells_each_change_and_ends_with_the_run(driver: Driver, environment: dict[str, str]) -> None:
    driver.report(JobState.STARTING)
    command = [WASMLINE, "status", driver.spec.job, "--watch", "--json"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["state"] == "starting"
        driver.tell(driver.partition(0, 2))
        driver.report(JobState.RUNNING)
        while (line := json.loads(watching.stdout.readline()))["state"] == "starting":
            pass
        assert line["totals"]["records_in"] == 2
        driver.report(JobState.STOPPED, "stopped at a batch boundary")
        *_, last = watching.stdout
    assert json.loads(last)["message"] == "stopped at a batch boundary"
    assert watching.returncode == 0


@pytest.mark.timeout(120)
def test_at_a_terminal_it_is_live_until_ctrl_c(driver: Driver, environment: dict[str, str]) -> None:
    driver.report(JobState.RUNNING, "first")
    screen, terminal = pty.openpty()
    environment |= {"COLUMNS": "200"}
    with subprocess.Popen([WASMLINE, "status", driver.spec.job], env=environment, stdout=terminal) as live:
        os.close(terminal)
        read_until(screen, b"first")
        driver.report(JobState.RUNNING, "second")
        read_until(screen, b"second")
        live.send_signal(signal.SIGINT)
        with suppress(OSError):  # the command has closed its end
            while os.read(screen, 4096):  # or it would wait for room to write
                pass
    os.close(screen)
    assert live.returncode == 0


def read_until(screen: int, wanted: bytes) -> None:
    seen = b""
    while wanted not in seen:
        seen += os.read(screen, 4096)


def test_the_list_shows_the_hosts_of_running_partitions(
    driver: Driver, kafka: RunningKafka, environment: dict[str, str]
) -> None:
    spec = deploy_identity(kafka.config, partitions=2)
    known = replace(driver.partition(0, 1), transform=spec.name, topic=spec.input_topic, host="spark-2")
    driver.tell(known, replace(known, partition=1, state="stopped"))
    detailed = CliRunner().invoke(main, ["list", "--detailed"], env=environment).stdout
    [shown] = re.findall(rf"{spec.name}, .*\n.*\n(.*)\n(.*)\n", detailed)
    assert [line.split() for line in shown] == [["0", "spark-2", "running", "0"], ["1", "-", "inactive", "0"]]


def test_a_report_of_another_release_is_named_and_hides_no_deployment_from_the_list(
    driver: Driver, kafka: RunningKafka, environment: dict[str, str]
) -> None:
    report = f"{driver.spec.job}/report/{driver.spec.run}".encode()
    with closing(RecordWriter(kafka.config)) as writer:
        writer.write(control_topics.JOBS, [(report, b'{"spec_version": 99}', [], None)])
        try:
            result = CliRunner().invoke(main, ["list"], env=environment)
        finally:
            writer.write(control_topics.JOBS, [(report, None, [], None)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("NAME")
    assert f"the report of job {driver.spec.job} cannot be read" in result.stderr
