"""The request of an order that a launcher starts its driver."""

from __future__ import annotations

from dataclasses import dataclass

from wasmline.errors import InvalidJob
from wasmline.job_specs import NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """The launcher that starts the driver, and the options of spark-submit.

    ``arguments`` are pairs of an option and its value. They name neither the program nor the application, and hold no
    secret: the launcher adds its own Spark, Python, connector's jars and Kafka settings.
    """

    launcher: str
    arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_launcher_name(self.launcher)


def require_launcher_name(name: str) -> None:
    """Raise InvalidJob for a name that no launcher can have."""
    if not NAME.fullmatch(name):
        raise InvalidJob(f"{name!r} is not a launcher's name: use up to 128 letters, digits, '.', '_' and '-'")
