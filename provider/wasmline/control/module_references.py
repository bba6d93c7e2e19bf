"""Reads what refers to each module: current deployments, generations in the history, and claims of jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from wasmline.control import control_topics
from wasmline.control.deployment_history import DeploymentEvent
from wasmline.control.deployment_spec import Deployment
from wasmline.control.job_topic import DriverClaim
from wasmline.documents import decode
from wasmline.errors import UnsupportedSpecVersion
from wasmline.kafka import CompactedTopic, KafkaConfig
from wasmline.printable import bounded_line

EVENT_KEY = re.compile(rb"[^/]+/[^/]*/event/.*", re.DOTALL)
CLAIM_KEY = re.compile(rb"([^/]+)/batch(?:/.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleReference:
    """A generation of a transform that has a module: the current one, one in the history, or that of a job's claim."""

    kind: Literal["deployment", "history", "claim"]
    transform: str
    version: str
    generation: int
    job: str = ""

    @property
    def is_history(self) -> bool:
        """Whether it is there for a rollback only."""
        return self.kind == "history"


@dataclass(frozen=True, kw_only=True)
class ModuleReferences:
    """The references to each module, by digest. ``unreadable``: records that may refer to any module, and why."""

    by_digest: Mapping[str, tuple[ModuleReference, ...]]
    unreadable: tuple[str, ...]

    def needed(self, digest: str, keep_generations: int | None = None) -> tuple[ModuleReference, ...]:
        """Return the references that keep a module: with ``keep_generations``, those to the last generations only of
        each transform, and those of current deployments and of claims."""
        found = self.by_digest.get(digest, ())
        if keep_generations is None:
            return found
        return tuple(
            each
            for each in found
            if not each.is_history or each.generation in self._generations[each.transform][-keep_generations:]
        )

    @cached_property
    def _generations(self) -> dict[str, list[int]]:
        """The generations of each transform, in ascending order."""
        found: dict[str, set[int]] = {}
        for each in (each for references in self.by_digest.values() for each in references):
            if each.kind != "claim":
                found.setdefault(each.transform, set()).add(each.generation)
        return {transform: sorted(numbers) for transform, numbers in found.items()}


class ModuleReferenceReader:
    """Reads the references to modules, again and again with the same clients. Not safe to share between threads."""

    def __init__(self, config: KafkaConfig) -> None:
        control_topics.ensure(config)
        self._deployments = CompactedTopic(config, control_topics.DEPLOYMENTS)
        self._history = CompactedTopic(config, control_topics.HISTORY, keep=lambda key: bool(EVENT_KEY.fullmatch(key)))
        self._jobs = CompactedTopic(config, control_topics.JOBS, keep=lambda key: bool(CLAIM_KEY.fullmatch(key)))

    def read(self) -> ModuleReferences:
        """Return the references that were written by now; waits for open transactions. Raises BrokerUnavailable.

        A generation that is replaced meanwhile is among the deployments or in the history.
        """
        return _references(self._deployments.read(), self._history.read(), self._jobs.read())

    def read_decided(self) -> ModuleReferences | None:
        """Return the references that were written by now; None if a deployment is being written, without waiting."""
        deployments = self._deployments.read_decided()
        history = self._history.read_decided()
        if deployments is None or history is None:
            return None
        return _references(deployments, history, self._jobs.read())

    def close(self) -> None:
        """Close the Kafka clients."""
        for each in (self._deployments, self._history, self._jobs):
            each.close()


def _references(
    deployments: Mapping[bytes, bytes], history: Mapping[bytes, bytes], jobs: Mapping[bytes, bytes]
) -> ModuleReferences:
    found: dict[str, dict[ModuleReference, None]] = {}
    unreadable = []
    tables = (
        (control_topics.DEPLOYMENTS, deployments, _of_deployment),
        (control_topics.HISTORY, history, _of_event),
        (control_topics.JOBS, jobs, _of_claim),
    )
    for topic, view, references in tables:
        for key, value in view.items():
            try:
                for digest, reference in references(key, value):
                    found.setdefault(digest, {})[reference] = None
            except UnsupportedSpecVersion as error:
                record = f"record {key.decode(errors='replace')} of {topic}"
                unreadable.append(f"{bounded_line(record)}: {bounded_line(error)}")
    return ModuleReferences(
        by_digest={digest: tuple(each) for digest, each in found.items()}, unreadable=tuple(unreadable)
    )


def _of_deployment(_: bytes, value: bytes) -> Iterator[tuple[str, ModuleReference]]:
    yield _reference("deployment", decode(Deployment, value))


def _of_event(_: bytes, value: bytes) -> Iterator[tuple[str, ModuleReference]]:
    yield _reference("history", decode(DeploymentEvent, value).deployment)


def _of_claim(key: bytes, value: bytes) -> Iterator[tuple[str, ModuleReference]]:
    if (deployment := decode(DriverClaim, value).deployment) is not None:
        yield _reference("claim", deployment, key.partition(b"/")[0].decode(errors="replace"))


def _reference(
    kind: Literal["deployment", "history", "claim"], deployment: Deployment, job: str = ""
) -> tuple[str, ModuleReference]:
    spec = deployment.spec
    reference = ModuleReference(
        kind=kind, transform=spec.name, version=spec.version, generation=deployment.generation, job=job
    )
    return spec.digest, reference
