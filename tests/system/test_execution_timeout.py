"""``execution_timeout`` of a task that is deferred, on a real scheduler and triggerer."""

from contextlib import closing
from typing import Any

import pytest

from support.streams.identity_transform import deploy_identity
from wasmline.control import JobTopic
from wasmline.job_specs import JobState
from wasmline.kafka import produce_all
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka

DAG = "stream_with_timeout"


@pytest.mark.long
def test_a_deferred_stream_is_stopped_when_its_task_has_taken_too_long(airflow: Any, kafka: RunningKafka) -> None:
    spec = deploy_identity(kafka.config)
    produce_all(kafka.config, spec.input_topic, [(b"k", b"%d" % number, None, None) for number in range(100)])
    airflow.api.unpause(DAG)
    run = airflow.api.trigger(DAG, {"transform": spec.name})
    task = f"/dags/{DAG}/dagRuns/{run}/taskInstances/stream"
    assert wait_until(lambda: airflow.api.get(task)["state"] == "deferred", 120)
    assert airflow.api.wait(DAG, run, timeout=300) == "failed"
    with closing(JobTopic(kafka.config)) as jobs:
        order = jobs.order(spec.name)
        assert (order.wanted, order.stopped_by) == ("stopped", "system")

        def is_stopped() -> bool:
            report = jobs.report(spec.name, order.spec.run)
            return report is not None and report.state is JobState.STOPPED

        assert wait_until(is_stopped, 60)
