"""The names by which Spark's minor releases call the same thing: of 4.2, and of 4.0 and 4.1 where they differ."""

from __future__ import annotations

from typing import Any

import pyspark

from wasmline.errors import JobError, PrerequisiteMissing

MINOR = tuple(int(each) for each in pyspark.__version__.split(".")[:2])


def checkpoint_file_manager(minor: tuple[int, ...] = MINOR) -> str:
    """Return the class that renames files of a checkpoint without libhadoop."""
    package = "org.apache.spark.sql.execution.streaming" + (".checkpointing" if minor >= (4, 1) else "")
    return f"{package}.FileSystemBasedCheckpointFileManager"


def input_partition(task: Any, minor: tuple[int, ...] = MINOR) -> Any:
    """Return what a source planned for a task, from the task's partition in the query plan.

    Before 4.2 a task may have several parts: raises JobError unless it has one, for others would be left out.
    """
    if minor >= (4, 2):
        return task.inputPartition().get()
    parts = task.inputPartitions()
    if parts.size() != 1:
        raise JobError(f"Spark gives {parts.size()} parts of the input to one task, and not one")
    return parts.head()


def require_tasks_by_number(reason: str, minor: tuple[int, ...] = MINOR) -> None:
    """Raise PrerequisiteMissing before Spark 4.1, which has no ``DataFrame.repartitionById``."""
    if minor < (4, 1):
        install = "pip install 'pyspark>=4.1,<4.3'"
        release = ".".join(map(str, minor))
        raise PrerequisiteMissing(f"{reason} needs Spark 4.1, and this is {release}: {install}", install=install)
