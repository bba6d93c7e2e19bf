"""The application as spark-submit runs it, under its supervisor, against plain and secured brokers."""

import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pyspark
import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.streams.identity_transform import deploy_identity
from wasmline.control import DeploymentSpec, JobTopic
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig, compacted_topic, produce_all, read_to_end
from wasmline.local.jars import connector_jars
from wasmline.spark import main
from wasmline.spark import spark_submit_supervisor as submit_wrapper
from wasmline.spark.session import TASK_ATTEMPTS
from wasmline.testing.kafka import RunningKafka

SPARK_HOME = Path(pyspark.__file__).parent
COMMAND = [
    str(SPARK_HOME / "bin" / "spark-submit"),
    "--master", "local[2]",
    "--jars", ",".join(str(jar) for jar in connector_jars()),
    "--conf", "spark.ui.enabled=false",
    str(Path(main.__file__)),
]  # fmt: skip


def environment(config: KafkaConfig) -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK_HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "WASMLINE_KAFKA_CONFIG": config.to_json(),
    }


def ordered(config: KafkaConfig, folder: Path, interval: str | None = None) -> tuple[JobSpec, DeploymentSpec]:
    """Make topics and a deployment, order a job for it, and put a thousand records in."""
    spec = deploy_identity(config, 3)
    order = JobSpec(
        job=spec.name,
        run="run-1",
        storage=str(folder),
        stream=StreamSpec(transform=spec.name, trigger_interval=interval),
        metrics_port=0,
    )
    JobTopic(config).submit(order)
    produce_all(config, spec.input_topic, ((f"k{i % 7}".encode(), str(i).encode(), [], None) for i in range(1_000)))
    return order, spec


def launched(config: KafkaConfig, order: JobSpec, log: Path, command: list[str]) -> subprocess.Popen[bytes]:
    names = ["--job", order.job, "--run", order.run]
    supervisor = [sys.executable, "-m", submit_wrapper.__name__, *names, "--log", str(log), "--", *command, *names]
    return subprocess.Popen(supervisor, env=environment(config), start_new_session=True)


def final_report(config: KafkaConfig, order: JobSpec) -> JobReport:
    report = JobTopic(config).report(order.job, order.run)
    assert report is not None
    assert report.state.final, report
    return report


def scraped(port: str, name: str) -> float:
    """Return the sum of a metric over its labels."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def until(condition: Callable[[], bool], patience: float = 90) -> None:
    clock = threading.Event()
    for _ in range(int(patience / 0.2)):
        if condition():
            return
        clock.wait(0.2)
    raise AssertionError("it never came true")


def test_a_job_on_a_secured_cluster_leaks_no_secret(secured_kafka, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    config = secured_kafka().config
    assert config.properties["security.protocol"] == "SASL_SSL"
    order, spec = ordered(config, tmp_path)
    log = tmp_path / "driver.log"

    assert launched(config, order, log, COMMAND).wait(180) == 0

    assert final_report(config, order).result["records_out"] == 1_000
    assert len(list(read_to_end(config, spec.output_topics[0]))) == 1_000
    assert config.properties["sasl.password"] not in log.read_text()
    assert config.properties["sasl.password"].encode() not in b"".join(
        message.value() or b"" for message in read_to_end(config, "_wasmline.jobs")
    )


def test_an_endless_job_serves_metrics_until_a_stop_record_ends_it_with_a_final_report(  # type: ignore[no-untyped-def]
    kafka, tmp_path: Path
) -> None:
    config, log = kafka.config, tmp_path / "driver.log"
    order, spec = ordered(config, tmp_path, interval="500 milliseconds")
    running = launched(config, order, log, COMMAND)
    until(lambda: len(list(read_to_end(config, spec.output_topics[0]))) == 1_000)

    port = re.search(rf"metrics of job {order.job} are at port (\d+)", log.read_text())
    assert port
    until(lambda: scraped(port[1], "wasmline_partition_records_out_total") == 1_000)

    JobTopic(config).stop(order.job, order.run)

    assert running.wait(60) == 0
    assert final_report(config, order).state is JobState.STOPPED
    assert "py4j" not in log.read_text(), "a line for each batch"


def test_what_spark_submit_was_told_wins_but_for_what_is_needed(tmp_path: Path) -> None:
    names = ("spark.master", "spark.network.timeout", "spark.sql.shuffle.partitions", "spark.speculation")
    script = tmp_path / "told.py"
    script.write_text(
        "from wasmline.spark.session import session\n"
        f"print([session('told', {{}}).conf.get(name) for name in {names}])\n"
    )
    told = ["--conf", "spark.network.timeout=77s", "--conf", "spark.speculation=true"]
    command = [COMMAND[0], "--master", "local[2]", "--conf", "spark.ui.enabled=false", *told, str(script)]
    plain = KafkaConfig({"bootstrap.servers": "unused:9092"})
    said = subprocess.run(command, env=environment(plain), capture_output=True, text=True, check=True, timeout=180)
    assert said.stdout.splitlines()[-1] == str([f"local[2,{TASK_ATTEMPTS}]", "77s", "4", "false"])


def test_a_killed_driver_is_reported_by_its_supervisor(kafka, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    config = kafka.config
    order, spec = ordered(config, tmp_path, interval="500 milliseconds")
    running = launched(config, order, tmp_path / "driver.log", COMMAND)
    until(lambda: len(list(read_to_end(config, spec.output_topics[0]))) == 1_000)

    [java] = subprocess.check_output(["pgrep", "-P", str(running.pid)], text=True).split()
    os.kill(int(java), signal.SIGKILL)

    running.wait(60)
    report = final_report(config, order)
    assert report.state is JobState.FAILED
    assert "spark-submit was killed by SIGKILL (out of memory, or kill -9)" in report.message
    assert f"{tmp_path / 'driver.log'} ends with:\n" in report.message
    assert subprocess.run(["pgrep", "-f", "--", f"--job {order.job}"], check=False).returncode == 1  # nothing is left


@pytest.mark.parametrize("command", [["no-such-spark-submit"], ["sh", "-c", "echo out of luck; exit 3"]])
def test_a_command_that_does_not_start_is_reported(kafka, tmp_path: Path, command: list[str]) -> None:  # type: ignore[no-untyped-def]
    config = kafka.config
    order = JobSpec(job=f"job-{uuid.uuid4().hex[:8]}", run="run-1", storage=str(tmp_path))
    JobTopic(config).submit(order)

    assert launched(config, order, tmp_path / "driver.log", command).wait(60) != 0

    report = final_report(config, order)
    assert report.state is JobState.FAILED
    assert any(hint in report.message for hint in ("No such file", "out of luck"))


@pytest.mark.long
def test_the_end_of_a_driver_is_reported_once_its_only_broker_is_back(
    stoppable_kafka: RunningKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(submit_wrapper, "REPORT_RETRY_DELAY_S", 0.1)
    monkeypatch.setattr(compacted_topic, "REQUEST_TIMEOUT_S", 1.0)
    config = stoppable_kafka.config
    order = JobSpec(job=f"job-{uuid.uuid4().hex[:8]}", run="run-1", storage=str(tmp_path))
    with closing(JobTopic(config)) as jobs:
        jobs.submit(order)
        until(lambda: jobs.report(order.job, order.run) is not None)  # a broker that is killed earlier may lose markers
    stoppable_kafka.local.kill_node(1)
    with ThreadPoolExecutor(1) as thread:
        command = ["sh", "-c", "echo out of memory; exit 3"]
        ended = thread.submit(submit_wrapper.supervise, config, order.job, order.run, command, tmp_path / "driver.log")
        until(lambda: "cannot be written yet" in caplog.text)
        stoppable_kafka.local.start_node(1)
        assert ended.result(120) == 3
    report = final_report(config, order)
    assert report.message.endswith("driver.log ends with:\nout of memory")
