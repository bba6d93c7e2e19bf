"""A driver's tasks reach executors of its own release only."""

import pickle

import pytest
from pyspark import cloudpickle

from wasmline.control import Deployment, DeploymentSpec
from wasmline.errors import ReleaseMismatch
from wasmline.job_specs import JobSpec, StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.leases.lease import Lease
from wasmline.spark import task_release
from wasmline.spark.microbatch.task import TransformTask
from wasmline.spark.microbatch.transactional_batches import TaskTransactions, TransactionalTask
from wasmline.spark.parallel.lease_source import LeasePartition
from wasmline.spark.task_release import ReleaseBound

SPEC = DeploymentSpec(name="t", version="1.0.0", digest="sha256:" + "0" * 64, input_topic="in", output_topics=("out",))
DEPLOYMENT = Deployment(spec=SPEC, generation=1, state="running", updated_ms=0)


def tasks() -> list[ReleaseBound]:
    job = JobSpec(job="j", run="r", storage="s", stream=StreamSpec(transform="t", mode="parallel"))
    lease = Lease(
        job=job, deployment=DEPLOYMENT, driver="d", epoch=1, topic="in", until=1.0, control_offsets={}, progress={0: 5}
    )  # fmt: skip
    work = TransformTask(deployment=DEPLOYMENT, module=None, stats=None)  # type: ignore[arg-type]
    writing = TaskTransactions(
        config="{}", group="g", transactional_id="i", compression="none", batch_bytes=1, topics=("out",)
    )
    partition = LeasePartition(lease, KafkaConfig({"bootstrap.servers": "b:1"}))
    return [partition, work, TransactionalTask(tasks=(), writing=writing, work=work)]


@pytest.mark.parametrize("task", tasks(), ids=lambda each: type(each).__name__)
def test_a_task_of_another_release_is_refused_before_its_fields_are_restored(
    task: ReleaseBound, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pickle.loads(pickle.dumps(task)) == task
    assert cloudpickle.loads(cloudpickle.dumps(task)) == task  # type: ignore[no-untyped-call]
    monkeypatch.setattr(task_release, "RELEASE", "0.0.9")
    data = pickle.dumps(task)
    monkeypatch.undo()
    with pytest.raises(ReleaseMismatch, match=r"the driver has Wasmline 0\.0\.9, and the executor on .* has") as caught:
        pickle.loads(data)
    assert (caught.value.driver, caught.value.executor) == ("0.0.9", task_release.RELEASE)
