"""Deletes the modules that nothing refers to: no current deployment, no generation in the history, no claim of a job.

Such a module is that of a deploy that failed after it had stored it, or some of its chunks. Fewer generations may be
kept than the history has: those before can then not be deployed again by a rollback.

No deployment that is committed refers to a module that was deleted, whatever the interleaving and whoever is killed:

1. A deploy stores or finds its module, writes the record of its generation in a transaction, waits until all in-sync
   replicas have it, then reads the module topic on to its end, and commits unless its module was deleted (it stores it
   again then).
2. A deletion writes the records that delete in a transaction, waits until all in-sync replicas have them, then reads
   deployments, history and claims on to their ends, and commits unless one of them refers to one of its modules.
3. Each writes before it reads. So of a deploy and a deletion of its module at least one reads what the other wrote: if
   the deletion does, it is aborted; if the deploy does, it waits until the deletion is decided.
4. The deletion waits for no deploy: it is aborted where one has not ended yet, and tried again. So neither waits for
   the other, and both make progress.
5. A killed one leaves a transaction that the coordinator aborts: all of its records are there, or none. The event in
   the history is one of them.

A deploy of a release before this one does not do 1, and may commit a generation whose module was deleted; a later
deploy of the same module relies on that one until the topic is compacted. With ``keep_generations``, so may a driver
claim a generation that it has read before later ones were deployed and its module was deleted: the module is there
until the topic is compacted; then the job ends with VersionNotFound until that version is deployed again.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from wasmline.clock import now_ms
from wasmline.control import control_topics
from wasmline.control.deployment_history import ChangeCause
from wasmline.control.module_history import ModuleEvent, module_event_record
from wasmline.control.module_references import ModuleReference, ModuleReferenceReader, ModuleReferences
from wasmline.control.module_store import ModuleChunks, ModuleStore
from wasmline.errors import Conflict, InvalidSpec, UnsupportedSpecVersion
from wasmline.kafka import KafkaConfig, TopicRecord, TransactionalWriter

logger = logging.getLogger(__name__)

TRANSACTIONAL_ID = "wasmline.modules"
"""The transactional.id of all deletions of modules."""

ATTEMPTS = 10
"""Attempts of a deletion while deployments are written at the same moment."""

RETRY_DELAY_S = 0.5
"""Maximum seconds between two of them."""

MAX_MODULES = 100
"""Maximum number of modules that one transaction deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModules:
    """The modules of a cluster, and the references to them."""

    modules: tuple[ModuleChunks, ...]
    references: ModuleReferences


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulePruningPlan:
    """The modules to delete.

    keep_generations: how many generations of each transform keep their modules; None for all.
    lost_generations: those whose module is deleted.
    """

    modules: tuple[ModuleChunks, ...]
    keep_generations: int | None
    lost_generations: tuple[ModuleReference, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of all modules to delete."""
        return sum(each.size_bytes for each in self.modules)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulePruning:
    """The digests of the modules that were deleted, and of those that are needed since they were planned."""

    deleted: tuple[str, ...]
    kept: tuple[str, ...]
    size_bytes: int


class _DeploymentsChange(Exception):
    """A deployment is being written, or one refers to a module to delete: the deletion is tried again."""


def read_modules(config: KafkaConfig) -> StoredModules:
    """Return the modules of a cluster, by digest, and what refers to them. Raises BrokerUnavailable."""
    modules = tuple(ModuleStore(config).modules())  # first: what refers to one of them is read
    with closing(ModuleReferenceReader(config)) as reader:
        return StoredModules(modules=modules, references=reader.read())


def plan_module_pruning(config: KafkaConfig, *, keep_generations: int | None = None) -> ModulePruningPlan:
    """Return the modules to delete: those that nothing refers to, or only generations before the last ones.

    Changes nothing. ``keep_generations``: how many generations of each transform keep their modules, at least 1; None
    for all. Raises InvalidSpec; UnsupportedSpecVersion if a record that this release cannot read may refer to a module;
    BrokerUnavailable.
    """
    if keep_generations is not None and keep_generations < 1:
        raise InvalidSpec(f"keep_generations must be at least 1, got {keep_generations}")
    stored = read_modules(config)
    _require_readable(stored.references)
    unneeded = [each for each in stored.modules if not stored.references.needed(each.digest, keep_generations)]
    lost = {each: None for module in unneeded for each in stored.references.by_digest.get(module.digest, ())}
    return ModulePruningPlan(
        modules=tuple(unneeded),
        keep_generations=keep_generations,
        lost_generations=tuple(sorted(lost, key=lambda each: (each.transform, each.generation))),
    )


def prune_modules(config: KafkaConfig, plan: ModulePruningPlan, *, cause: ChangeCause) -> ModulePruning:
    """Delete the modules of a plan that are still not needed, and record it in the history topic.

    Raises UnsupportedSpecVersion as the plan does; Conflict if another client deletes modules, or if deployments are
    written at each attempt; BrokerUnavailable. What was deleted by then stays so: a repetition deletes what is left.
    """
    deleted: list[ModuleChunks] = []
    with closing(ModuleReferenceReader(config)) as reader:
        for modules in _batches(plan.modules):
            deleted += _delete(config, reader, modules, plan.keep_generations, cause)
    done = {each.digest for each in deleted}
    return ModulePruning(
        deleted=tuple(each.digest for each in deleted),
        kept=tuple(each.digest for each in plan.modules if each.digest not in done),
        size_bytes=sum(each.size_bytes for each in deleted),
    )


def _delete(
    config: KafkaConfig,
    reader: ModuleReferenceReader,
    modules: Sequence[ModuleChunks],
    keep_generations: int | None,
    cause: ChangeCause,
) -> list[ModuleChunks]:
    """Delete the modules that are not needed in one transaction, and return them."""
    for _ in range(ATTEMPTS):
        with closing(TransactionalWriter(config, control_topics.MODULES, TRANSACTIONAL_ID)) as writer:
            unneeded = _unneeded(modules, reader.read(), keep_generations)
            if not unneeded:
                return []
            before_commit = partial(_require_unneeded, reader, unneeded, keep_generations, cause)
            try:
                writer.write({key: None for each in unneeded for key in each.keys}, (), before_commit)
            except _DeploymentsChange:
                logger.info("a deployment is written while modules are deleted: the deletion is tried again")
                time.sleep(random.uniform(0, RETRY_DELAY_S))
            except Conflict as conflict:
                text = "another client deletes modules, or this took more than 10 s: repeat it"
                raise Conflict(text, name=TRANSACTIONAL_ID, generation=None) from conflict
            else:
                return unneeded
    raise Conflict(
        f"deployments were written at each of {ATTEMPTS} attempts to delete modules: repeat this when nothing is "
        "deployed",
        name=TRANSACTIONAL_ID,
        generation=None,
    )


def _require_unneeded(
    reader: ModuleReferenceReader, deleted: Sequence[ModuleChunks], keep_generations: int | None, cause: ChangeCause
) -> list[TopicRecord]:
    """Return the record of the deletion, which is written and not committed. Raises _DeploymentsChange."""
    references = reader.read_decided()
    if references is None or len(_unneeded(deleted, references, keep_generations)) < len(deleted):
        raise _DeploymentsChange
    return [_event_record(deleted, keep_generations, cause)]


def _unneeded(
    modules: Sequence[ModuleChunks], references: ModuleReferences, keep_generations: int | None
) -> list[ModuleChunks]:
    _require_readable(references)
    return [each for each in modules if not references.needed(each.digest, keep_generations)]


def _require_readable(references: ModuleReferences) -> None:
    if references.unreadable:
        first, *others = references.unreadable
        also = f" (and {len(others)} others)" if others else ""
        raise UnsupportedSpecVersion(
            f"no module is deleted: any may be needed by what this release cannot read, {first}{also}. Use the release "
            "that wrote it; if none did, delete the record"
        )


def _event_record(deleted: Sequence[ModuleChunks], keep_generations: int | None, cause: ChangeCause) -> TopicRecord:
    event = ModuleEvent(
        action="prune",
        digests=tuple(each.digest for each in deleted),
        size_bytes=sum(each.size_bytes for each in deleted),
        keep_generations=keep_generations,
        changed_ms=now_ms(),
        cause=cause,
    )
    return module_event_record(event)


def _batches(modules: Sequence[ModuleChunks]) -> Iterator[Sequence[ModuleChunks]]:
    for begin in range(0, len(modules), MAX_MODULES):
        yield modules[begin : begin + MAX_MODULES]
