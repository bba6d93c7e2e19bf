"""Decides where the driver of a task's job runs: here, on the cluster, or on a launcher's machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wasmline.control import LaunchRequest, require_launcher
from wasmline_provider.task_container import require_lasting_container

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig
    from wasmline_provider.hooks.spark import SparkJobHook


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverHome:
    """The place of a driver. ``log_folder`` is a folder of the machine that runs spark-submit.

    request: what the launcher is asked for; None if this process starts the driver.
    description: the beginning of a log line that ends with the path of the output.
    """

    log_folder: Path
    description: str
    request: LaunchRequest | None = None


def find_driver_home(spark: SparkJobHook, kafka: KafkaConfig, launcher: str | None, folder: Path) -> DriverHome:
    """Return the place of a driver that outlives the task.

    Raises LauncherUnavailable if the launcher sends no heartbeats, PrerequisiteMissing for a driver on a cluster that
    cannot run it, and EphemeralContainer for one here that would end with the task.
    """
    if launcher:
        request = LaunchRequest(launcher=launcher, arguments=tuple(spark.launch_arguments()))
        status = require_launcher(kafka, launcher)
        return DriverHome(
            log_folder=Path(status.log_folder),
            description=f"launcher {launcher} starts its driver on {status.host}, with its output in",
            request=request,
        )
    if spark.on_cluster:
        spark.require_deploy_mode()
        return DriverHome(log_folder=folder, description="its driver is on the cluster; the submission's output is in")
    require_lasting_container()
    return DriverHome(log_folder=folder, description="its driver's output is in")
