"""Compares a model's champion with the deployments that serve the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from wasmline.control import Deployment
from wasmline.documents import plain
from wasmline.errors import ModelNotServing, VersionNotFound
from wasmline.model_reference import ModelReference
from wasmline.registry import FilesystemRegistry, Version

ServingState = Literal[
    "serving",
    "no champion",
    "not published",
    "not deployed",
    "other model",
    "other version",
    "other bytes",
    "paused",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFacts:
    """A model's champion, its published modules and its deployments.

    ``modules`` has, for each transform that serves the model or is to, the digest of the champion's published module;
    None if there is none. ``rolled_back``: the champion is live by a rollback.
    """

    model: str
    champion: ModelReference | None
    modules: Mapping[str, str | None]
    deployments: tuple[Deployment, ...]
    rolled_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServing:
    """Whether the champion serves. ``explanation`` says what disagrees, where, and what to do."""

    facts: ServingFacts
    state: ServingState
    explanation: str

    @property
    def agrees(self) -> bool:
        """Whether each deployment runs the champion's module, or there is neither a champion nor a deployment."""
        return self.state == "serving" or (self.state == "no champion" and not self.facts.deployments)


def serves(deployment: Deployment, model: str) -> bool:
    """Whether a deployment declares that it predicts with a version of ``model``."""
    return deployment.spec.model is not None and deployment.spec.model.name == model


def published_module(registry: FilesystemRegistry, transform: str, model: ModelReference) -> Version | None:
    """Return the published module of a model version, or None if there is none, or one of another model."""
    try:
        version = registry.get(transform, model.version)
    except VersionNotFound:
        return None
    return version if version.metadata.transform.get("model") == plain(model) else None


def require_serving(serving: ModelServing) -> None:
    """Raise ModelNotServing unless the champion and its deployments agree."""
    if not serving.agrees:
        raise ModelNotServing(f"{serving.state}: {serving.explanation}", name=serving.facts.model, state=serving.state)


def decide_serving(facts: ServingFacts) -> ModelServing:
    """Return the first disagreement between the champion, its modules and the deployments; pure."""
    if facts.champion is None:
        return _without_champion(facts)
    for transform, module in facts.modules.items():
        if module is None:
            return _not_published(facts, facts.champion, transform)
    if not facts.deployments:
        [transform] = facts.modules
        return ModelServing(
            facts=facts,
            state="not deployed",
            explanation=f"no deployment of this cluster serves the champion {facts.champion}: run wasmline deploy "
            f"{transform}@{facts.champion.version}",
        )
    found = [_deployed(facts, facts.champion, deployment) for deployment in facts.deployments]
    return next((each for each in found if each.state != "serving"), found[0])


def _without_champion(facts: ServingFacts) -> ModelServing:
    explanation = f"no version of {facts.model} was promoted"
    if facts.deployments:
        explanation = f"{_running(facts.deployments[0])}, but {explanation}: promote it, or pause the deployment"
    return ModelServing(facts=facts, state="no champion", explanation=explanation)


def _not_published(facts: ServingFacts, champion: ModelReference, transform: str) -> ModelServing:
    running = "".join(f"; {_running(each)}" for each in facts.deployments if each.spec.name == transform)
    return ModelServing(
        facts=facts,
        state="not published",
        explanation=f"the champion {champion} is not published as the transform {transform}@{champion.version}"
        f"{running}: run wasmline models compile {champion}{_option(facts.model, transform)}, then "
        f"{_remedy(facts, champion, transform)}",
    )


def _deployed(facts: ServingFacts, champion: ModelReference, deployment: Deployment) -> ModelServing:
    """Return how one deployment serves the champion, whose module is published."""
    spec, module = deployment.spec, facts.modules[deployment.spec.name]
    if spec.model is None or spec.model.name != champion.name:
        remedy = f"wasmline deploy {spec.name}@{champion.version}"
        return _other(facts, "other model", deployment, f"the champion is {champion}", remedy)
    remedy = _remedy(facts, champion, spec.name)
    if spec.model.version != champion.version:
        return _other(facts, "other version", deployment, f"the champion is {champion}", remedy)
    if spec.model != champion:
        what = f"its model is {spec.model.digest} and the champion {champion.digest}, or their datasets differ"
        return _other(facts, "other bytes", deployment, what, remedy)
    if module and spec.digest != module:
        what = f"its module is {spec.digest} and the published one {module}"
        return _other(facts, "other bytes", deployment, what, remedy)
    if deployment.state == "paused":
        return _other(facts, "paused", deployment, f"is paused: {deployment.reason}", f"wasmline resume {spec.name}")
    return ModelServing(facts=facts, state="serving", explanation=_running(deployment))


def _other(facts: ServingFacts, state: ServingState, deployment: Deployment, what: str, remedy: str) -> ModelServing:
    return ModelServing(facts=facts, state=state, explanation=f"{_running(deployment)}, but {what}: run {remedy}")


def _running(deployment: Deployment) -> str:
    spec = deployment.spec
    return f"generation {deployment.generation} of {spec.name} runs {spec.model or 'no model'}"


def _remedy(facts: ServingFacts, champion: ModelReference, transform: str) -> str:
    if facts.rolled_back and facts.deployments:  # a rollback keeps the topics of the deployment
        return f"wasmline models rollback {champion.name} --to {champion.version}"
    return f"wasmline deploy {transform}@{champion.version}"


def _option(model: str, transform: str) -> str:
    return "" if transform == model else f" --transform {transform}"
