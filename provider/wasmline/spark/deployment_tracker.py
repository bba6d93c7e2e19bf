"""Selects the generation of a deployment for each batch, and rejects one that cannot run."""

from __future__ import annotations

from wasmline.control import Deployment, DeploymentTopic, JobOrder, ModuleStore
from wasmline.errors import DeploymentPaused, ModuleError, TransformError
from wasmline.kafka import KafkaConfig, Topics
from wasmline.pipeline import FailureWindow
from wasmline.pipeline.preflight import Preflight, pause_reason


class DeploymentTracker:
    """Follows one deployment for a driver. Used from one thread at a time."""

    def __init__(self, config: KafkaConfig, name: str, *, run: str = "") -> None:
        """``run`` names the driver's run in the history of the deployment."""
        self._name = name
        self._run = run
        self._config = config
        self._log = DeploymentTopic(config)
        self._modules = ModuleStore(config)
        self._bytes: tuple[str, bytes] = ("", b"")
        self._preflight = Preflight(config, self.module)
        self._window = ((0, 0), FailureWindow(1.0))
        self._limits: tuple[tuple[int, int], dict[str, int]] = ((0, 0), {})

    def current(self) -> Deployment:
        """Return the current deployment. Raises DeploymentNotFound."""
        return self._log.get(self._name)

    def running(self) -> Deployment:
        """Return the current deployment. Raises DeploymentNotFound, and DeploymentPaused if it must not run."""
        deployment = self.current()
        require_running(deployment)
        return deployment

    def module(self, deployment: Deployment) -> bytes:
        """Return the module's verified bytes; the last requested module is cached."""
        digest = deployment.spec.digest
        if self._bytes[0] != digest:
            self._bytes = (digest, self._modules.get(digest, deployment.module_offsets))
        return self._bytes[1]

    def check(self, deployment: Deployment) -> None:
        """Check the generation before its first record; pause it if its module does not start.

        Raises the failure, so that the module gets no record. A missing topic (TopicNotFound) does not pause the
        deployment.
        """
        try:
            self._preflight.check(deployment)
        except (ModuleError, TransformError) as error:
            self.pause(deployment, pause_reason(error))
            raise

    def window(self, deployment: Deployment) -> FailureWindow:
        """Return the failure window over the batches of a deployment; a new one after a change or a resumption."""
        if self._window[0] != _change(deployment):
            self._window = (_change(deployment), FailureWindow(deployment.spec.max_failure_share))
        return self._window[1]

    def batch_bytes(self, deployment: Deployment, usual: int) -> int:
        """Return the producer's batch.size: ``usual``, or less if an output topic has a smaller limit.

        A rejected batch is split into batches of that size. If those were rejected as well, the producer would retry
        for the two minutes of delivery.timeout.ms, and report a timeout.
        """
        return min([usual, *self.limits(deployment).values()])

    def limits(self, deployment: Deployment) -> dict[str, int]:
        """Return ``max.message.bytes`` of the output topics, except those whose settings this client cannot read."""
        if self._limits[0] != _change(deployment):
            limits = Topics(self._config).record_limits(deployment.spec.topics[1:])
            self._limits = (_change(deployment), limits)
        return self._limits[1]

    def pause(self, deployment: Deployment, reason: str) -> bool:
        """Pause this generation and return True; return False if a newer generation is deployed."""
        return self._log.pause_generation(deployment, reason, run=self._run)

    def close(self) -> None:
        """Close the Kafka clients."""
        self._log.close()


def _change(deployment: Deployment) -> tuple[int, int]:
    """Return what tells a deployment from the same generation after it was paused and resumed."""
    return deployment.generation, deployment.updated_ms


def require_unpaused(order: JobOrder) -> None:
    """Raise DeploymentPaused if the job, which runs a function, is paused."""
    if order.paused:
        job = order.spec.job
        raise DeploymentPaused(f"job {job} is paused ({order.pause_reason}): wasmline resume --job {job}", name=job)


def require_running(deployment: Deployment) -> None:
    """Raise DeploymentPaused if the deployment is paused."""
    if deployment.state == "paused":
        name = deployment.spec.name
        raise DeploymentPaused(f"{name} is paused ({deployment.reason}): resume it or deploy again", name=name)
