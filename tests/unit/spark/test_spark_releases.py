"""What differs between the releases of Spark; the running one is tested by every integration test."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from wasmline.errors import JobError, PrerequisiteMissing
from wasmline.job_specs import JobSpec, StreamSpec
from wasmline.kafka import KafkaConfig
from wasmline.spark.microbatch import transactional_batches
from wasmline.spark.microbatch.transactional_batches import require_gathering
from wasmline.spark.session import SETTINGS
from wasmline.spark.spark_releases import checkpoint_file_manager, input_partition

PACKAGE = "org.apache.spark.sql.execution.streaming"


@pytest.mark.parametrize(
    ("minor", "package"),
    [((4, 0), PACKAGE), ((4, 1), f"{PACKAGE}.checkpointing"), ((4, 2), f"{PACKAGE}.checkpointing")],
)
def test_the_file_manager_of_checkpoints_is_where_each_minor_has_it(minor: tuple[int, int], package: str) -> None:
    assert checkpoint_file_manager(minor) == f"{package}.FileSystemBasedCheckpointFileManager"
    assert checkpoint_file_manager() in SETTINGS.values()


def task(minor: tuple[int, int], *parts: str) -> Any:
    """Return a task's partition of the query plan: a sequence of Scala before 4.2, an option since."""
    found = SimpleNamespace(size=lambda: len(parts), head=lambda: parts[0])
    if minor < (4, 2):
        return SimpleNamespace(inputPartitions=lambda: found)
    return SimpleNamespace(inputPartition=lambda: SimpleNamespace(get=found.head))


@pytest.mark.parametrize("minor", [(4, 0), (4, 1), (4, 2)])
def test_the_range_of_a_task_is_found_in_the_plan_of_each_minor(minor: tuple[int, int]) -> None:
    assert input_partition(task(minor, "range"), minor) == "range"


@pytest.mark.parametrize("minor", [(4, 0), (4, 1)])
@pytest.mark.parametrize("parts", [(), ("range", "another")])
def test_a_task_of_no_part_or_of_several_is_refused(minor: tuple[int, int], parts: tuple[str, ...]) -> None:
    with pytest.raises(JobError, match=f"gives {len(parts)} parts of the input to one task"):
        input_partition(task(minor, *parts), minor)


@pytest.mark.parametrize(
    ("minor", "shards", "partitions", "refusal"),
    [
        ((4, 0), 4, 1, "shards with exactly_once .* needs Spark 4.1, and this is 4.0: pip install"),
        ((4, 0), None, 65, "of orders, which has more than 64 partitions, needs Spark 4.1"),
        ((4, 0), None, 64, None),
        ((4, 1), 4, 65, None),
    ],
)
def test_batches_that_spark_cannot_gather_are_refused_before_the_job_is_taken_over(
    monkeypatch: pytest.MonkeyPatch, minor: tuple[int, int], shards: int | None, partitions: int, refusal: str | None
) -> None:
    def topics(config: KafkaConfig) -> Any:
        return SimpleNamespace(describe=lambda topic: SimpleNamespace(partitions=partitions))

    monkeypatch.setattr(transactional_batches, "Topics", topics)
    stream = StreamSpec(transform="t", delivery="exactly_once", shards=shards)
    job = JobSpec(job="j", run="r", storage="s", stream=stream)
    refused = pytest.raises(PrerequisiteMissing, match=refusal) if refusal else nullcontext()
    with refused:
        require_gathering(KafkaConfig({"bootstrap.servers": "b:1"}), job, "orders", minor)
