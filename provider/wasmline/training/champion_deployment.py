"""Deploys a model's module only while its version is the champion."""

from __future__ import annotations

from wasmline.control import NO_CAUSE, ChangeCause, Deployment, DeploymentSpec, deploy, read_deployments
from wasmline.errors import Conflict
from wasmline.kafka import KafkaConfig
from wasmline.training.model_publisher import model_reference
from wasmline.training.model_registry import ModelRegistry
from wasmline.training.promotion_log import PromotionLog


def deploy_champion(
    kafka: KafkaConfig,
    spec: DeploymentSpec,
    wasm: bytes,
    *,
    models: str,
    expected_generation: int | None = None,
    cause: ChangeCause = NO_CAUSE,
) -> Deployment:
    """Deploy ``wasm`` as ``spec`` if its model is the champion in the registry at ``models``.

    The generation is read before the champion, and replaced by compare-and-set. After a rollback or a promotion whose
    module is deployed, a late deploy of another version is therefore a Conflict, whenever it began.

    Raises Conflict for another model or version than the champion, VersionNotFound for a champion that the registry
    lacks, and the errors of ``deploy``.
    """
    if expected_generation is None:
        current = (each.generation for each in read_deployments(kafka) if each.spec.name == spec.name)
        expected_generation = next(current, 0)
    require_champion(models, spec)
    return deploy(kafka, spec, wasm, expected_generation=expected_generation, cause=cause)


def require_champion(models: str, spec: DeploymentSpec) -> None:
    """Raise Conflict unless the model of ``spec`` is the champion; of one without a model, that of its name."""
    model = spec.model.name if spec.model else spec.name
    live = PromotionLog(models).champion(model)
    champion = model_reference(ModelRegistry(models).get(model, live)) if live else None
    if spec.model is None or spec.model != champion:
        raise Conflict(
            f"{spec.name}@{spec.version} has {spec.model or 'no model'}, and the champion is {champion or 'none'} in "
            f"{models}: nothing was deployed. Look at the history of the model, and deploy the champion",
            name=spec.name,
            generation=None,
        )
