"""Rolls a model back: an earlier version becomes the champion, and its module replaces the one that serves.

The steps, in this order:

1. Read the deployments of the model, then the promotion log. A promotion in between is in the log; after one that comes
   later, step 3 conflicts, or step 4 if it has been deployed.
2. Compile, prove and publish the module of the version; prove it again if it is published. Nothing has changed yet for
   the stream if this fails.
3. Append the decision to the promotion log. Of two rollbacks, or a rollback and a promotion, one wins here.
4. Deploy the module over the generation of step 1 by compare-and-set, with its topics, env and limits.

The log is changed before the stream because the log decides who wins: in the other order, a rollback that loses to a
promotion would have changed the stream already. After a crash between the steps the stream runs the version that it ran
before: ``ModelReader.serving`` names it, and the same rollback again does what is left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from wasmline.control import ChangeCause, Deployment, DeploymentSpec, deploy, read_deployments, require_topics
from wasmline.errors import DeploymentNotFound, DigestMismatch, InvalidRollback
from wasmline.kafka import KafkaConfig
from wasmline.registry import FilesystemRegistry
from wasmline.training.model_publisher import model_reference, publish_model
from wasmline.training.model_registry import ModelRegistry
from wasmline.training.model_serving import serves
from wasmline.training.promotion_log import PromotionLog
from wasmline.training.promotion_record import Promotion
from wasmline.training.rollback_target import recorded_rollback, rollback_target


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """What a rollback of ``model`` from ``champion`` to ``version`` has left to do.

    ``recorded`` is its decision if the log has it already. ``deployments`` are those to move, as they were read.
    """

    model: str
    champion: str
    version: str
    deployments: tuple[Deployment, ...]
    recorded: Promotion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackResult:
    """The decision, and the deployments that were moved."""

    promotion: Promotion
    deployments: tuple[Deployment, ...]


def plan_rollback(
    model: str, *, models: str, kafka: KafkaConfig, version: str | None = None, run: str = ""
) -> RollbackPlan:
    """Return the rollback to ``version``, by default to the champion before the current one. Changes nothing.

    A rollback that was recorded and not deployed is completed, and so is that of the same ``run``. Raises
    InvalidRollback for the current champion and where there is none before it, VersionNotFound, Conflict if another
    decision followed the rollback of ``run``, and DeploymentNotFound if no deployment serves the model.
    """
    deployments = [each for each in read_deployments(kafka) if serves(each, model)]
    known = ModelRegistry(models)
    known.get(model)
    history = PromotionLog(models).history(model)
    if not deployments:
        raise DeploymentNotFound(
            f"no deployment on {kafka.bootstrap_servers} serves the model {model}: name the cluster that does, or "
            "compile and deploy its champion",
            name=model,
        )
    running = {each.spec.model.version for each in deployments if each.spec.model}
    recorded = recorded_rollback(history, version=version, run=run, running=running)
    target = recorded.version if recorded else rollback_target(model, history, version)
    wanted = model_reference(known.get(model, target))
    return RollbackPlan(
        model=model,
        champion=str(recorded.champion if recorded else history[-1].live),
        version=target,
        deployments=tuple(each for each in deployments if each.spec.model != wanted),
        recorded=recorded,
    )


def roll_back(
    plan: RollbackPlan,
    *,
    models: str,
    registry: str,
    kafka: KafkaConfig,
    reason: str,
    by: str = "",
    run: str = "",
    cache_dir: Path | None = None,
) -> RollbackResult:
    """Do what ``plan`` has left. A recorded decision keeps its own reason and user.

    Raises Conflict if another decision or deployment came meanwhile, InvalidRollback without a reason, the errors of
    ``publish_model`` and those of ``deploy``.
    """
    if not plan.recorded and not reason.strip():
        raise InvalidRollback(f"the rollback of {plan.model} needs a reason", name=plan.model)
    moves = [_module(plan, each, models, registry, cache_dir) for each in plan.deployments]
    for spec, _ in moves:
        require_topics(kafka, spec)
    promotion = plan.recorded or PromotionLog(models).roll_back(
        plan.model, plan.version, champion=plan.champion, reason=reason, by=by, run=run
    )
    cause = ChangeCause.shortened(reason=promotion.reason, by=promotion.by, run=promotion.run)
    moved = [
        deploy(kafka, spec, wasm, expected_generation=current.generation, cause=cause)
        for current, (spec, wasm) in zip(plan.deployments, moves, strict=True)
    ]
    return RollbackResult(promotion=promotion, deployments=tuple(moved))


def _module(
    plan: RollbackPlan, deployment: Deployment, models: str, registry: str, cache_dir: Path | None
) -> tuple[DeploymentSpec, bytes]:
    """Return a deployment with the plan's version, and the module, published and proven."""
    modules = FilesystemRegistry(registry)
    declared = current = deployment.spec
    if plan.version in modules.versions(current.name):  # its declaration is for ever
        declared = DeploymentSpec.of(modules.get(current.name, plan.version))
    output_topic, *_ = declared.output_topics
    published = publish_model(
        models=models,
        model=plan.model,
        version=plan.version,
        registry=registry,
        input_topic=declared.input_topic,
        output_topic=output_topic,
        dead_letter_topic=declared.dead_letter_topic or declared.output_topics[-1],
        transform=current.name,
        cache_dir=cache_dir,
    )
    version, wasm = modules.load(current.name, plan.version)
    if version.digest != published.digest:
        raise DigestMismatch(
            f"{version} in {registry} was replaced after it was proven: publish it again under another name",
            expected=published.digest,
            actual=version.digest,
        )
    spec = replace(current, version=version.version, digest=version.digest, model=published.model)
    return spec, wasm
