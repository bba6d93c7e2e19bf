"""Checks a deployment before its first record: in a driver, in a planner of leases, and in a consumer."""

from __future__ import annotations

from collections.abc import Callable

from wasmline.control import Deployment, DeploymentSpec, require_topics
from wasmline.errors import InvalidJob, ModuleError, TransformError, WasmlineError
from wasmline.kafka import KafkaConfig
from wasmline.wasm import CompiledTransform, TransformRuntime


class Preflight:
    """Checks each generation of a deployment once.

    ``load`` returns the module, which is started once; None for a planner of leases: it runs no module, to compile one
    would delay every lease, and each task starts its own (``start_module``).
    """

    def __init__(self, config: KafkaConfig, load: Callable[[Deployment], bytes] | None) -> None:
        self._config = config
        self._load = load
        self._checked = 0

    def check(self, deployment: Deployment) -> None:
        """Check that the topics exist and that the module starts.

        Raises TopicNotFound; without this check a producer would wait a minute for the topic, and then fail the batch.
        Raises the ModuleError or TransformError of the module.
        """
        if deployment.generation == self._checked:
            return
        require_topics(self._config, deployment.spec)
        if self._load is not None:
            start_module(deployment.spec, self._load(deployment))
        self._checked = deployment.generation


def start_module(spec: DeploymentSpec, wasm: bytes) -> CompiledTransform:
    """Compile a module and start it once. Raises its ModuleError or TransformError."""
    compiled = TransformRuntime().compile(wasm)
    compiled.instantiate(spec.context(), spec.limits()).close()
    return compiled


def require_input_topic(deployment: Deployment, topic: str) -> None:
    """Raise InvalidJob if the deployment does not read the topic of the run."""
    spec = deployment.spec
    if spec.input_topic != topic:
        raise InvalidJob(
            f"generation {deployment.generation} of {spec.name} reads {spec.input_topic}, but this run reads {topic}: "
            "run the job again"
        )


def pause_reason(error: WasmlineError) -> str:
    """Return the reason to pause a deployment for an error. One of the module itself is from its start."""
    return f"failed before its first record: {error}" if isinstance(error, ModuleError | TransformError) else str(error)
