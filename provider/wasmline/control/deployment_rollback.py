"""Rolls a deployment back to one of its earlier generations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, fields

from wasmline.control.deployment_history import ChangeCause, DeploymentEvent, GenerationHistory, HistoryTopic
from wasmline.control.deployment_spec import Deployment, DeploymentSpec
from wasmline.control.deployment_topic import DeploymentTopic, deploy
from wasmline.control.module_store import ModuleStore
from wasmline.errors import Conflict, InvalidRollback, VersionNotFound
from wasmline.kafka import KafkaConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRollbackPlan:
    """The deployment to replace, and the earlier one whose specification is deployed again.

    restored_generation: the generation of ``target`` or, if that was made by a rollback, the one that it restored.
    """

    current: Deployment
    target: Deployment
    restored_generation: int

    @property
    def changed_fields(self) -> tuple[str, ...]:
        """The fields of the specification that differ."""
        names = (each.name for each in fields(DeploymentSpec))
        return tuple(each for each in names if getattr(self.current.spec, each) != getattr(self.target.spec, each))


def plan_deployment_rollback(
    config: KafkaConfig,
    name: str,
    *,
    version: str | None = None,
    generation: int | None = None,
    expected_generation: int | None = None,
) -> DeploymentRollbackPlan:
    """Return the rollback to the last earlier generation of ``version``, or to ``generation``. Changes nothing.

    The default is the generation before the current one; if the current one was made by a rollback, the one before the
    generation that it restored. ``expected_generation`` is the generation to replace; None for any. Raises
    DeploymentNotFound, InvalidRollback, Conflict if another generation is current, BrokerUnavailable.
    """
    with closing(DeploymentTopic(config)) as deployments:
        current = deployments.get(name)
    if expected_generation not in (None, current.generation):
        raise Conflict(
            f"{name} is at generation {current.generation}, not {expected_generation}: nothing was changed",
            name=name,
            generation=current.generation,
        )
    return plan_rollback_of(current, HistoryTopic(config).generations(name), version=version, generation=generation)


def plan_rollback_of(
    current: Deployment,
    history: Iterable[GenerationHistory],
    *,
    version: str | None = None,
    generation: int | None = None,
) -> DeploymentRollbackPlan:
    """Return the rollback of the ``current`` deployment within its ``history``: see plan_deployment_rollback.

    Raises InvalidRollback.
    """
    name = current.spec.name
    by_number = {each.number: each for each in history}
    earlier = [each for number, each in by_number.items() if number < current.generation]
    if version is not None:
        wanted, found = f"version {version}", [each for each in earlier if each.deployment.spec.version == version]
    else:
        number = generation or _restored_generation(current.generation, by_number) - 1
        wanted, found = f"generation {number}", [each for each in earlier if each.number == number]
    if not found:
        known = ", ".join(f"{each.number} ({each.deployment.spec.version})" for each in earlier[-10:]) or "none"
        raise InvalidRollback(
            f"{name} has no earlier {wanted} in its history; the last earlier generations are {known}: name one of "
            "them, or deploy a version",
            name=name,
        )
    target = found[-1].deployment
    if target.spec == current.spec:
        raise InvalidRollback(
            f"{name} already runs the specification of generation {target.generation}, version {target.spec.version}: "
            "nothing was changed; name another generation or version",
            name=name,
        )
    if target.spec.model != current.spec.model:
        raise InvalidRollback(
            f"generations {current.generation} and {target.generation} of {name} serve different models: use "
            "wasmline models rollback, or RollbackModelOperator in Airflow, which change the champion as well",
            name=name,
        )
    restored = _restored_generation(target.generation, by_number)
    return DeploymentRollbackPlan(current=current, target=target, restored_generation=restored)


def roll_back_deployment(config: KafkaConfig, plan: DeploymentRollbackPlan, *, cause: ChangeCause) -> Deployment:
    """Deploy the specification of the plan's target as the next generation, and return it.

    The module is stored again, unless a current deployment has it: it may have been deleted from the module topic and
    still be at its offsets. Raises InvalidRollback without a reason, Conflict if another was deployed since the plan
    was made, VersionNotFound if the cluster has the module no more, and the errors of ``deploy``.
    """
    target, spec = plan.target, plan.target.spec
    if not cause.reason.strip():
        raise InvalidRollback(f"the rollback of {spec.name} needs a reason", name=spec.name)
    try:
        wasm = ModuleStore(config).get(spec.digest, target.module_offsets)
    except VersionNotFound as error:
        text = f"generation {target.generation} of {spec.name} cannot be deployed again: the cluster has its module "
        text += f"{spec.digest} no more. Nothing was changed; deploy the version from the registry: "
        text += f"wasmline deploy {spec.name}@{spec.version}"
        raise VersionNotFound(text, name=spec.name, version=spec.version) from error
    return deploy(
        config,
        spec,
        wasm,
        expected_generation=plan.current.generation,
        restored_generation=plan.restored_generation,
        cause=cause,
    )


def find_rollback(config: KafkaConfig, name: str, run: str, *, replaced: int | None = None) -> Deployment | None:
    """Return the current deployment if it is the rollback that ``run`` made; None if that run has made none.

    ``replaced``: the generation that the rollback is to replace; earlier rollbacks of the run do not count. Raises
    Conflict if another generation was deployed after that rollback, DeploymentNotFound.
    """

    def is_it(event: DeploymentEvent) -> bool:
        return event.action == "rollback" and event.deployment.generation > (replaced or 0)

    return _made_by(config, name, run, is_it)


def find_deploy(config: KafkaConfig, spec: DeploymentSpec, run: str) -> Deployment | None:
    """Return the current deployment if ``run`` has made it with this specification; None if that has made none.

    Raises Conflict if another generation was deployed after it.
    """
    return _made_by(config, spec.name, run, lambda event: event.action == "deploy" and event.deployment.spec == spec)


def _made_by(config: KafkaConfig, name: str, run: str, is_it: Callable[[DeploymentEvent], bool]) -> Deployment | None:
    """Return the current deployment if it is the last generation that ``run`` made by such an event; None without one.

    Raises Conflict if another generation is current.
    """
    first_events = [each.events[0] for each in HistoryTopic(config).generations(name)]
    made = [each for each in first_events if each.cause.run == run and is_it(each)]
    if not made:
        return None
    with closing(DeploymentTopic(config)) as deployments:  # after the history: one that is newer was deployed since
        current = deployments.get(name)
    last = made[-1]
    if last.deployment.generation != current.generation:
        action = "deployed" if last.action == "deploy" else "rolled back"
        raise Conflict(
            f"{run} has {action} {name} in generation {last.deployment.generation}, and generation "
            f"{current.generation} is current: nothing was changed",
            name=name,
            generation=current.generation,
        )
    return current


def _restored_generation(number: int, by_number: Mapping[int, GenerationHistory]) -> int:
    """Return the generation that a generation restores, directly or by others; itself if it was not made so."""
    while number in by_number:
        restored = by_number[number].events[0].restored_generation
        if restored is None or restored >= number:  # a stranger may have written anything
            break
        number = restored
    return number
