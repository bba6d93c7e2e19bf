"""Decides where the driver of a task's job is placed: here, on the cluster, or on a launcher's machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wasmline.control import LaunchRequest, require_launcher
from wasmline_provider.task_container import require_lasting_container

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig
    from wasmline_provider.hooks.spark import SparkJobHook


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPlacement:
    """The place of a driver.

    log_folder: returns a folder of the machine that runs spark-submit, for a driver that is to be started. Raises
        LauncherUnavailable if the launcher sends no heartbeats.
    launch_request: what the launcher is asked for; None if this process starts the driver.
    description: the beginning of a log line that ends with the path of the output.
    """

    log_folder: Callable[[], Path]
    description: str
    launch_request: LaunchRequest | None = None


def place_driver(spark: SparkJobHook, kafka: KafkaConfig, launcher: str | None, folder: Path) -> DriverPlacement:
    """Return the place of a driver that outlives the task. A launcher is only asked for when it is needed.

    Raises PrerequisiteMissing for a driver on a cluster that cannot run it, and EphemeralContainer for one here that
    would end with the task.
    """
    if launcher:
        return DriverPlacement(
            log_folder=lambda: Path(require_launcher(kafka, launcher).log_folder),
            description=f"launcher {launcher} starts its driver, with its output in",
            launch_request=LaunchRequest(launcher=launcher, arguments=tuple(spark.launch_arguments())),
        )
    if spark.on_cluster:
        spark.require_deploy_mode()
        where = "its driver is on the cluster; the submission's output is in"
        return DriverPlacement(log_folder=lambda: folder, description=where)
    require_lasting_container()
    return DriverPlacement(log_folder=lambda: folder, description="its driver's output is in")
