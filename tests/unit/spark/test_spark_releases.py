"""What differs between the releases of Spark; the running one is tested by every integration test."""

from types import SimpleNamespace
from typing import Any

import pytest

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


@pytest.mark.parametrize("minor", [(4, 0), (4, 1), (4, 2)])
def test_the_range_of_a_task_is_found_in_the_plan_of_each_minor(minor: tuple[int, int]) -> None:
    older = SimpleNamespace(inputPartitions=lambda: SimpleNamespace(head=lambda: "range"))
    newer = SimpleNamespace(inputPartition=lambda: SimpleNamespace(get=lambda: "range"))
    task: Any = older if minor < (4, 2) else newer
    assert input_partition(task, minor) == "range"
