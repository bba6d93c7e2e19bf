"""``wasmline launcher`` with a real Spark and a real broker, and operators that are refused a driver."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.streams.identity_transform import deploy_identity
from wasmline.control import DeploymentSpec, JobTopic, require_launcher
from wasmline.errors import EphemeralContainer, JobNotFound, LauncherUnavailable, PrerequisiteMissing
from wasmline.job_specs import JobState
from wasmline.kafka import produce_all, read_to_end
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline_provider import driver_placement, task_container
from wasmline_provider.operators.stream import SparkStreamOperator

RECORDS = 200

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to" / "run_without_airflow.md"

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def transform(kafka: RunningKafka, monkeypatch: pytest.MonkeyPatch) -> DeploymentSpec:
    """An identity transform between fresh topics, and connections to reach it."""
    spec = deploy_identity(kafka.config)
    extra = {"bootstrap.servers": kafka.bootstrap_servers}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    return spec


def operator(spec: DeploymentSpec, folder: Path, **arguments: Any) -> SparkStreamOperator:
    return SparkStreamOperator(
        task_id="stream",
        job=spec.name,
        transform=spec.name,
        storage=str(folder),
        conf={"spark.ui.enabled": "false"},
        trigger_interval="500 milliseconds",
        delivery="exactly_once",
        **arguments,
    )


def context() -> Any:
    ti = SimpleNamespace(dag_id="dag", run_id="run", task_id="stream", map_index=-1, log_url="")
    return {"ti": ti, "outlet_events": {}}


def require_nothing_ordered(kafka: RunningKafka, job: str) -> None:
    jobs = JobTopic(kafka.config)
    try:
        with pytest.raises(JobNotFound):
            jobs.order(job)
    finally:
        jobs.close()


def test_a_task_whose_container_ends_with_it_is_refused_before_anything_is_ordered(
    transform: DeploymentSpec, kafka: RunningKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(task_container.KUBERNETES_EXECUTOR_VARIABLE, "True")
    with pytest.raises(EphemeralContainer, match="Nothing was ordered"):
        operator(transform, tmp_path).submit_job(context())
    require_nothing_ordered(kafka, transform.name)


def test_a_cluster_that_runs_no_python_driver_is_refused_before_anything_is_ordered(
    transform: DeploymentSpec, kafka: RunningKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standalone = {"conn_type": "spark", "host": "spark://master:7077", "extra": {"deploy-mode": "cluster"}}
    parsed = operator(transform, tmp_path)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(standalone))
    with pytest.raises(PrerequisiteMissing, match="runs no Python driver"):
        parsed.submit_job(context())
    require_nothing_ordered(kafka, transform.name)


def test_a_launcher_that_is_not_there_is_an_error_before_anything_is_ordered(
    transform: DeploymentSpec, kafka: RunningKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = partial(require_launcher, timeout=0.1)
    monkeypatch.setattr(driver_placement, "require_launcher", at_once)
    with pytest.raises(LauncherUnavailable, match=r"wasmline launcher --name nobody"):
        operator(transform, tmp_path, launcher="nobody").submit_job(context())
    require_nothing_ordered(kafka, transform.name)


@pytest.fixture
def start(kafka: RunningKafka) -> Iterator[Start]:
    """Start launchers as an operator of a machine would; end those that are left."""
    running: list[subprocess.Popen[bytes]] = []

    def start(name: str, folder: Path, output: Path) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "WASMLINE_KAFKA_CONFIG": kafka.config.to_json()}
        command = [sys.executable, "-m", "wasmline.cli", "launcher", "--name", name, "--log-folder", str(folder)]
        with output.open("wb") as log:
            running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        return running[-1]

    yield start
    for each in running:
        each.kill()
        each.wait()


def drivers(job: str) -> list[int]:
    """Return the process ids of the JVMs and the applications of a job."""
    found = subprocess.run(["pgrep", "-f", "--", f"main.py --job {job} "], capture_output=True, text=True, check=False)
    return [int(each) for each in found.stdout.split() if b"supervisor" not in _command_line(int(each))]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b"supervisor"  # it has ended


def test_a_launcher_starts_a_driver_of_its_own_machine_that_outlives_it(
    transform: DeploymentSpec, kafka: RunningKafka, tmp_path: Path, start: Start
) -> None:
    name, jobs, output = f"l-{uuid.uuid4().hex[:8]}", JobTopic(kafka.config), tmp_path / "launcher.log"
    launcher = start(name, tmp_path / "drivers", output)
    produce_all(kafka.config, transform.input_topic, ((b"%d" % n, b"v", None, None) for n in range(RECORDS)))
    run = operator(transform, tmp_path / "storage", launcher=name).submit_job(context())
    try:
        assert wait_until(lambda: bool(drivers(transform.name)), 60)
        launcher.terminate()
        assert launcher.wait(30) == 0
        topic = transform.output_topics[0]
        assert wait_until(lambda: len(list(read_to_end(kafka.config, topic))) == RECORDS, 120)
        assert run["log"] == str(tmp_path / "drivers" / transform.name / f"{run['run']}.log")
        assert "driver started, attempt 1 (ordered)" in output.read_text()
    finally:
        jobs.stop(run["job"], run["run"])
        assert wait_until(lambda: not drivers(transform.name), 60)
        jobs.close()


@pytest.mark.long
def test_the_program_of_the_how_to_orders_a_stream_that_a_launcher_starts(
    transform: DeploymentSpec, kafka: RunningKafka, tmp_path: Path, start: Start
) -> None:
    [program] = re.findall(r"^`order\.py`:\n\n```python\n(.*?)^```$", HOW_TO.read_text(), re.MULTILINE | re.DOTALL)
    name, jobs = f"l-{uuid.uuid4().hex[:8]}", JobTopic(kafka.config)
    own = {"shout": transform.name, "streams": name, "spark://spark-master:7077": "local[2]"}
    for known, value in {**own, "s3a://bucket/wasmline": str(tmp_path / "storage")}.items():
        assert f'"{known}"' in program
        program = program.replace(f'"{known}"', f'"{value}"')
    start(name, tmp_path / "drivers", tmp_path / "launcher.log")
    produce_all(kafka.config, transform.input_topic, ((b"%d" % n, b"v", None, None) for n in range(RECORDS)))
    environment = {**os.environ, "WASMLINE_KAFKA_CONFIG": kafka.config.to_json()}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    try:
        topic = transform.output_topics[0]
        assert wait_until(lambda: len(list(read_to_end(kafka.config, topic))) == RECORDS, 300)
    finally:
        jobs.stop(transform.name, jobs.order(transform.name).spec.run)
        assert wait_until(lambda: not drivers(transform.name), 60)
        jobs.close()


@pytest.mark.long
def test_a_launcher_starts_drivers_starts_dead_ones_again_and_is_itself_replaced(
    transform: DeploymentSpec, kafka: RunningKafka, tmp_path: Path, start: Start
) -> None:
    name, jobs = f"l-{uuid.uuid4().hex[:8]}", JobTopic(kafka.config)
    first, second = tmp_path / "first.log", tmp_path / "second.log"

    def has(log: Path, line: str) -> bool:
        return line in log.read_text()

    def written(count: int) -> bool:
        return len(list(read_to_end(kafka.config, transform.output_topics[0]))) == count

    def put() -> None:
        produce_all(kafka.config, transform.input_topic, ((b"%d" % n, b"v", None, None) for n in range(RECORDS)))

    active = start(name, tmp_path / "drivers", first)
    assert wait_until(lambda: has(first, "active"), 60)
    idle = start(name, tmp_path / "elsewhere", second)
    put()
    run = operator(transform, tmp_path / "storage", launcher=name).submit_job(context())
    try:
        assert wait_until(lambda: written(RECORDS), 120)
        assert run["log"] == str(tmp_path / "drivers" / transform.name / f"{run['run']}.log")
        assert Path(run["log"]).stat().st_size > 0
        assert wait_until(lambda: has(second, "this process waits"), 60)
        assert not has(second, "active")

        dead = drivers(transform.name)
        assert dead
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        put()
        assert wait_until(lambda: written(2 * RECORDS), 120)
        assert has(first, "driver started, attempt 2")
        living = drivers(transform.name)
        assert living
        assert not set(living) & set(dead)

        active.kill()
        active.wait()
        assert wait_until(lambda: has(second, f"job {transform.name}, run {run['run']}: adopted"), 60)
        assert drivers(transform.name) == living
        idle.terminate()
        assert idle.wait(30) == 0
        put()
        assert wait_until(lambda: written(3 * RECORDS), 60)  # the driver outlives its launchers
    finally:
        jobs.stop(run["job"], run["run"])
        assert wait_until(lambda: not drivers(transform.name), 60)
    report = jobs.report(run["job"], run["run"])
    jobs.close()
    assert report is not None
    assert report.state is JobState.STOPPED
    assert written(3 * RECORDS)
