"""Deployments by compare-and-set: each writer fences the other writers of that name and reads before it writes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial

from wasmline.clock import now_ms
from wasmline.control import control_topics
from wasmline.control.deployment_history import (
    NO_CAUSE,
    Action,
    ChangeCause,
    DeploymentEvent,
    HistoryTopic,
    event_record,
)
from wasmline.control.deployment_spec import Deployment, DeploymentSpec, ModuleOffsets
from wasmline.control.module_store import ModuleDeleted, ModuleStore, StoredModule
from wasmline.digests import digest_of
from wasmline.documents import decode, encode
from wasmline.errors import (
    Conflict,
    DeploymentNotFound,
    DigestMismatch,
    TopicNotFound,
    UnprovenModel,
    UnsupportedSpecVersion,
)
from wasmline.kafka import CompactedTopic, KafkaConfig, TopicRecord, Topics
from wasmline.model_reference import ModelReference
from wasmline.printable import bounded_line
from wasmline.wasm.model_section import model_of

logger = logging.getLogger(__name__)

BACKFILLED = "earlier-release"
"""Unique part of the key of the event that is written for a generation of a release without a history."""

PAUSE_ATTEMPTS = 5
"""Attempts while others write the same deployment."""

STORE_ATTEMPTS = 3
"""Attempts of a deploy whose module others delete meanwhile."""


class DeploymentTopic:
    """The deployments of a cluster: one record per transform name, the last one is current."""

    def __init__(self, config: KafkaConfig) -> None:
        control_topics.ensure(config)
        self._config = config
        self._topic = CompactedTopic(config, control_topics.DEPLOYMENTS)

    def all(self) -> dict[str, Deployment]:
        """Return every current deployment by name; one that this release cannot read is skipped with a warning."""
        found = {}
        for key, value in sorted(self._topic.read().items()):
            name = key.decode(errors="replace")
            try:
                found[name] = decode(Deployment, value)
            except UnsupportedSpecVersion as error:
                logger.warning("the deployment of %s is skipped: %s", bounded_line(name), error)
        return found

    def get(self, name: str) -> Deployment:
        """Return the current deployment of ``name``, or raise DeploymentNotFound."""
        return _require_deployed(name, self.find(name))

    def find(self, name: str) -> Deployment | None:
        """Return the current deployment of ``name``, None if there is none."""
        return _decoded(self._topic.read(), name)

    def deploy(
        self,
        spec: DeploymentSpec,
        *,
        expected_generation: int | None = None,
        module_offsets: ModuleOffsets | None = None,
        restored_generation: int | None = None,
        cause: ChangeCause = NO_CAUSE,
        require_module: Callable[[], object] | None = None,
    ) -> Deployment:
        """Write the next generation of ``spec.name`` and return it.

        If the current one has this ``spec``, it is returned, and resumed if it is paused.
        ``expected_generation`` is the generation that the caller has read (0 = none yet); None accepts any.
        ``restored_generation`` is the one that a rollback deploys again. ``require_module`` is called when the
        generation is written and not committed; nothing is changed if it raises. Raises Conflict if the current
        generation differs, or if another writer writes at the same time.
        """

        def following(current: Deployment | None) -> Deployment:
            generation = current.generation if current else 0
            if expected_generation not in (None, generation):
                raise Conflict(
                    f"{spec.name} is at generation {generation}, not {expected_generation}: "
                    "it was deployed meanwhile; check the current deployment and retry",
                    name=spec.name,
                    generation=generation,
                )
            if current is not None and current.spec == spec:
                return replace(current, state="running", reason="")
            return Deployment(
                spec=spec,
                generation=(generation or self._last_generation(spec.name)) + 1,
                state="running",
                updated_ms=0,
                module_offsets=module_offsets,
            )

        action: Action = "deploy" if restored_generation is None else "rollback"
        return self._set(spec.name, action, following, cause, restored_generation, require_module)

    def pause(
        self, name: str, reason: str, *, generation: int | None = None, by: str = "", run: str = ""
    ) -> Deployment:
        """Pause ``name`` with a reason, of which the history keeps one line. ``by`` and ``run``: see ChangeCause.

        With ``generation``, raises Conflict unless that one is current; one that is paused keeps its reason.
        """

        def paused(current: Deployment | None) -> Deployment:
            deployed = _require_deployed(name, current)
            if generation not in (None, deployed.generation):
                message = f"{name} moved on to generation {deployed.generation}; generation {generation} was not paused"
                raise Conflict(message, name=name, generation=deployed.generation)
            if generation is not None and deployed.state == "paused":  # another task found the same fault
                return deployed
            return replace(deployed, state="paused", reason=reason)

        return self._set(name, "pause", paused, ChangeCause.shortened(reason=reason, by=by, run=run))

    def pause_generation(self, deployment: Deployment, reason: str, *, run: str = "") -> bool:
        """Pause this generation despite concurrent writers and return True; return False if a newer one is current.

        ``run`` names the run that found it at fault.
        """
        name = deployment.spec.name
        for _ in range(PAUSE_ATTEMPTS):
            try:
                self.pause(name, reason, generation=deployment.generation, run=run)
            except Conflict as conflict:
                logger.info("%s", conflict)
                if self.get(name).generation != deployment.generation:
                    return False
            else:
                return True
        return False

    def resume(self, name: str, *, generation: int | None = None, cause: ChangeCause = NO_CAUSE) -> Deployment:
        """Resume a paused ``name`` from its progress. With ``generation``, raises Conflict unless that is current."""

        def resumed(current: Deployment | None) -> Deployment:
            deployed = _require_deployed(name, current)
            if generation not in (None, deployed.generation):
                message = (
                    f"{name} moved on to generation {deployed.generation}; generation {generation} was not resumed"
                )
                raise Conflict(message, name=name, generation=deployed.generation)
            return replace(deployed, state="running", reason="")

        return self._set(name, "resume", resumed, cause)

    def close(self) -> None:
        """Close the Kafka clients."""
        self._topic.close()

    def _set(
        self,
        name: str,
        action: Action,
        following: Callable[[Deployment | None], Deployment],
        cause: ChangeCause,
        restored_generation: int | None = None,
        require_module: Callable[[], object] | None = None,
    ) -> Deployment:
        """Write what follows the current deployment, with the event of its history, unless that is the same."""
        made: list[Deployment] = []
        events: list[TopicRecord] = []

        def decide(view: dict[bytes, bytes]) -> dict[bytes, bytes]:
            current = _decoded(view, name)
            made.append(following(current))
            if made[-1] == current:
                return {}
            made[-1] = replace(made[-1], updated_ms=now_ms())
            if current is not None and current.generation < made[-1].generation and self._is_missing(current):
                events.append(event_record(DeploymentEvent(action="deploy", deployment=current), BACKFILLED))
            event = DeploymentEvent(
                action=action, deployment=made[-1], cause=cause, restored_generation=restored_generation
            )
            events.append(event_record(event))
            return {name.encode(): encode(made[-1])}

        def before_commit() -> tuple[TopicRecord, ...]:
            if require_module is not None:
                require_module()
            return ()

        checks = before_commit if require_module is not None else None
        try:
            self._topic.compare_and_set(f"wasmline.deployment.{name}", decide, lambda: events, checks)
        except Conflict as conflict:
            if made:  # the decision was made, but another writer was first
                text = f"{name} is being deployed concurrently: check the current deployment and retry"
                raise Conflict(text, name=name, generation=None) from conflict
            raise
        return made[-1]

    def _last_generation(self, name: str) -> int:
        """Return the last generation in the history of a name that is not deployed; 0 without one."""
        return max((each.number for each in HistoryTopic(self._config).generations(name)), default=0)

    def _is_missing(self, deployment: Deployment) -> bool:
        """Return whether the history lacks a generation, as one that a release without a history has deployed."""
        if deployment.module_offsets is not None:
            return False
        known = HistoryTopic(self._config).generations(deployment.spec.name)
        return all(each.number != deployment.generation for each in known)


def deploy(
    config: KafkaConfig,
    spec: DeploymentSpec,
    wasm: bytes,
    *,
    expected_generation: int | None = None,
    restored_generation: int | None = None,
    cause: ChangeCause = NO_CAUSE,
) -> Deployment:
    """Deploy ``wasm`` as ``spec``: check the topics, store and verify the module, then write the next generation.

    The current generation is returned if it has this ``spec``, and resumed if it is paused. The module is not stored
    again if it is where a current deployment of any name has it, and stored again if it is deleted meanwhile: see
    module_pruning. ``expected_generation`` and ``restored_generation``: see DeploymentTopic.deploy.

    Raises TopicNotFound for a topic that does not exist, DigestMismatch if ``wasm`` does not match the digest of
    ``spec``, UnprovenModel and InvalidModel unless it is the proven module of the model of ``spec``, Conflict if
    another deployer was first, and BrokerUnavailable.
    """
    require_topics(config, spec)
    digest = digest_of(wasm)
    if digest != spec.digest:
        raise DigestMismatch(f"{spec.name}@{spec.version} names another module", expected=spec.digest, actual=digest)
    require_proven_model(spec, wasm)
    modules = ModuleStore(config)
    with closing(DeploymentTopic(config)) as deployments:
        for _ in range(STORE_ATTEMPTS):
            try:
                stored = modules.put(wasm, _deployed_module(deployments, modules, digest))
                # It may wait for a deletion that was killed, and in the transaction all readers would wait with it.
                stored = modules.require_kept(stored)
                return deployments.deploy(
                    spec,
                    expected_generation=expected_generation,
                    module_offsets=stored.offsets,
                    restored_generation=restored_generation,
                    cause=cause,
                    require_module=partial(modules.require_kept, stored),
                )
            except ModuleDeleted:
                logger.info("module %s was deleted while it was deployed: it is stored again", digest)
    raise Conflict(
        f"the module of {spec.name} was deleted at each of {STORE_ATTEMPTS} attempts to deploy it, and nothing was "
        "changed: deploy it when no modules are pruned",
        name=spec.name,
        generation=None,
    )


def read_deployments(config: KafkaConfig) -> list[Deployment]:
    """Return every current deployment of a cluster, by name; one that this release cannot read is skipped with a
    warning."""
    with closing(DeploymentTopic(config)) as topic:
        return list(topic.all().values())


def require_topics(config: KafkaConfig, spec: DeploymentSpec) -> None:
    """Raise TopicNotFound for a topic that ``spec`` reads or writes and that does not exist."""
    known = Topics(config)
    for topic in spec.topics:
        if not known.exists(topic):
            raise TopicNotFound(
                f"{spec.name} needs topic {topic!r}, which does not exist: create it first", topic=topic
            )


def require_proven_model(spec: DeploymentSpec, wasm: bytes) -> None:
    """Raise UnprovenModel unless the module has the model of ``spec``, proven as it is; both may have none.

    Raises InvalidModel for a module that describes its model in a malformed way.
    """
    found = model_of(wasm)
    actual = found.section.model if found else None
    if actual != spec.model:
        raise UnprovenModel(
            f"{spec.name}@{spec.version} declares {_named(spec.model)}, and its module has {_named(actual)}: publish "
            "the model again, under another version",
            name=spec.name,
        )
    if found and not found.proven:
        raise UnprovenModel(
            f"the module of {spec.name}@{spec.version} was changed after it was proven to be {actual}: compile and "
            "publish the model again",
            name=spec.name,
        )


def _deployed_module(deployments: DeploymentTopic, modules: ModuleStore, digest: str) -> StoredModule | None:
    """Return where a current deployment of any name has a module, None if none does or if the place is not known."""
    kept_to = modules.decided_end()  # before the deployments are read: what one of them has then is deleted later
    known = (each.module_offsets for each in deployments.all().values() if each.spec.digest == digest)
    offsets = next(filter(None, known), None)
    return StoredModule(digest=digest, offsets=offsets, kept_to=kept_to) if offsets is not None else None


def _named(model: ModelReference | None) -> str:
    return f"the model {model}, {model.digest}" if model else "no model"


def _decoded(view: dict[bytes, bytes], name: str) -> Deployment | None:
    data = view.get(name.encode())
    return decode(Deployment, data) if data else None


def _require_deployed(name: str, current: Deployment | None) -> Deployment:
    if current is None:
        raise DeploymentNotFound(f"nothing is deployed as {name!r}: wasmline deploy", name=name)
    return current
