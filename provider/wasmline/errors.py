"""The errors of Wasmline, as one tree.

    WasmlineError
    ├─ Conflict(name, generation) · Fenced(job)
    ├─ ModuleError      the bytes or the project cannot become a transform
    │                   InvalidModule · UnsupportedAbi · MissingExport · UnknownImport · InvalidProject(path, line)
    │                   BuildFailed(log) · ToolchainMissing(install) · SampleMismatch(diff)
    │                   InvalidJsonLine(source, line)
    ├─ TransformError   a guest failed on a record (partition, offset), or could not be given any
    │                   GuestTrap(code) · GuestTimeout(limit_ms) · GuestOutOfMemory(limit_bytes) · GuestExit(status)
    │                   GuestProtocolError · RecordTooLarge · InvalidBatch · InstanceClosed · SandboxViolation
    ├─ RegistryError    VersionNotFound · VersionExists · DigestMismatch · RegistryUnavailable
    │                   RegistryMisconfigured, a RegistryUnavailable
    │                   InvalidReference(reference) · InvalidLayout(path) · InvalidArtifact
    │                   InvalidLocation(location)
    ├─ DeployError      InvalidSpec · LimitExceeded, an InvalidSpec · DeploymentNotFound · DeploymentPaused
    │                   UnprovenModel(name) · ModelNotServing(name, state) · InvalidRollback(name)
    │                   InvalidRedrive(topic)
    ├─ KafkaError       BrokerUnavailable(bootstrap_servers) · InvalidKafkaConfig(key) · ClientClosed
    │                   TopicNotFound(topic) · TopicMisconfigured(topic, setting) · NotAuthorized(name)
    │                   RecordNotFound(topic, partition, offset) · RecordRejected
    │                   CorruptRecord(topic, partition, offset)
    │                   InexactMetadata · ClientUntested · GroupInUse(group, members) · ProducerIdExpired
    │                   HangingTransaction(transactional_id, producer_id, partitions)
    │                   HangingTransactionEnded(partitions), a BrokerUnavailable
    ├─ ConsumerError    InvalidConsumerOption(option) · InvalidOffsetMetadata(offset, reason) · CommitFailed
    │                   MetadataTooLarge · ProducerFenced · TerminalFailure · RecordsFailed(failures, outputs)
    │                   HandlerCancelled · HandlerTimeout(limit_ms) · HandlerBroken · HandlerStuck
    │                   OutputRefused(place) · UnsafeBroker
    │                   RecordGivenUp(topic, partition, offset, attempts)
    │                   OffsetOutOfRange(topic, partition, offset, start)
    ├─ LocalError       PrerequisiteMissing(install) · ArtifactUnavailable · PortInUse(port) · ServiceFailed(log)
    │                   EphemeralContainer(sign)
    ├─ TrainingError    InvalidTrainSpec(field) · NotEnoughData(rows) · GateFailed(report) · InvalidModel
    │                   ModelProofFailed(record, expected, actual, path) · RecordsRemoved(offsets)
    │                   TrainingSkipped(result)
    └─ JobError         UnsupportedSpecVersion · InvalidJob · JobNotFound · JobBusy(job, run) · JobFailed(report)
                        DuplicateJob(job) · LauncherUnavailable(launcher, alive)
                        TooManyFailures(share) · SourceInvalid(path) · VerificationFailed(report)
                        ProgressLost(group, topic, partition, offset) · ReleaseMismatch(driver, executor)

A message says what happened, where, and what the reader can do. Its facts are attributes. Every error pickles, because
Spark and multiprocessing carry errors between processes. ``retryable`` says whether the same call may succeed later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

NOTES = "__notes__"
"""The attribute with what ``add_note`` has added to an error."""


class WasmlineError(Exception):
    """The root of the tree. Keyword arguments are the facts of the error and become its attributes."""

    retryable: ClassVar[bool] = False
    _declared = frozenset[str]()

    def __init_subclass__(cls) -> None:
        cls._declared = frozenset(name for each in cls.__mro__ for name in vars(each).get("__annotations__", {}))

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        if not self._declared.issuperset(facts):
            unknown = facts.keys() - self._declared
            raise TypeError(f"{type(self).__name__} declares no fact named {', '.join(sorted(unknown))}")
        self.__dict__.update(facts)

    def __reduce__(self) -> tuple[Any, ...]:
        facts = dict(vars(self))
        notes = {NOTES: facts.pop(NOTES)} if NOTES in facts else None
        return _rebuild, (type(self), str(self), facts), notes


def _rebuild(cls: type[WasmlineError], message: str, facts: dict[str, Any]) -> WasmlineError:
    return cls(message, **facts)


class Conflict(WasmlineError):
    """Another writer changed the deployment or the model first; read it again before the next change."""

    name: str
    generation: int | None


class Fenced(WasmlineError):
    """A newer driver claimed the job; this one must end."""

    job: str


class ModuleError(WasmlineError):
    """The bytes, or the project they are built from, cannot become a transform."""


class InvalidModule(ModuleError):
    """The bytes are not a WebAssembly module that this host can compile."""


class UnsupportedAbi(ModuleError):
    """The module imports no ABI marker that this host supports."""


class MissingExport(ModuleError):
    """The module lacks ``_start`` or ``memory``, or has it with another type."""

    export: str


class UnknownImport(ModuleError):
    """The module imports a function that no transform host provides."""

    imports: tuple[str, ...]


class InvalidProject(ModuleError):
    """``transform.yaml`` cannot be used; ``line`` counts from 1 and is None if no line is the cause."""

    path: str
    line: int | None


class BuildFailed(ModuleError):
    """The compiler rejected the source; ``log`` is its output."""

    log: str


class ToolchainMissing(ModuleError):
    """A compiler is absent or too old; ``install`` is the command to install it."""

    install: str


class SampleMismatch(ModuleError):
    """The transform does not give the expected outputs on its sample records; ``diff`` is a unified diff."""

    diff: str


class InvalidJsonLine(ModuleError):
    """A line of JSON Lines is not a record; ``line`` counts from 1."""

    source: str
    line: int


class TransformError(WasmlineError):
    """A guest failed on one record. The record is dead-lettered and its batch goes on.

    ``partition`` and ``offset`` are the record's in its input topic; None if no record is the cause.
    """

    partition: int | None = None
    offset: int | None = None


class GuestTrap(TransformError):
    """The guest trapped; ``code`` is the trap's name in the WebAssembly specification's terms."""

    code: str


class GuestTimeout(TransformError):
    """The guest used more CPU time on one record than its limit."""

    limit_ms: int


class GuestOutOfMemory(TransformError):
    """The guest ran out of memory: it reported so, or reached its limit, or the record does not fit."""

    limit_bytes: int


class GuestExit(TransformError):
    """The guest ended: a transform must never exit, with any status."""

    status: int


class GuestProtocolError(TransformError):
    """The guest broke the transform ABI: it dropped records, or returned from ``_start``."""


class RecordTooLarge(TransformError):
    """The record, or an output of the guest for it, exceeds the memory of the host or the limit of an output topic."""


class InvalidBatch(TransformError):
    """The records are not in RECORD_SCHEMA and cannot be cast to it, or are too many. No record is the cause."""


class SandboxViolation(TransformError):
    """A guest's store returned data that no guest can write: no output of the batch can be trusted."""


class InstanceClosed(TransformError):
    """The transform instance was closed, or belongs to the process that this one was forked from."""


class RegistryError(WasmlineError):
    """A version cannot be read or written."""


class VersionNotFound(RegistryError):
    """No such name or version."""

    name: str
    version: str | None


class VersionExists(RegistryError):
    """The version exists with other bytes or with another declaration; versions are immutable."""

    name: str
    version: str


class DigestMismatch(RegistryError):
    """Bytes do not have the declared digest or size; ``path`` is below a registry's root, if in one."""

    expected: str
    actual: str
    path: str | None = None


class InvalidReference(RegistryError):
    """A name, a version or ``name@version`` is not valid in the registry."""

    reference: str


class InvalidLayout(RegistryError):
    """The registry's contents are not the OCI image layout of their version; ``path`` is below its root."""

    path: str


class InvalidArtifact(RegistryError):
    """The artifact to publish could not be read back: it is too large, or its metadata are malformed."""


class InvalidLocation(RegistryError):
    """The URL of a registry, of models or of a storage, or the login to its object store, is missing or unusable.

    ``location`` names it, such as ``models``.
    """

    location: str


class RegistryUnavailable(RegistryError):
    """The registry's storage failed: a full disk, a missing permission, an unreachable store."""

    retryable = True


class RegistryMisconfigured(RegistryUnavailable):
    """The registry's object store refuses until it is set up: wrong credentials, a missing bucket, no conditions."""

    retryable = False


class DeployError(WasmlineError):
    """A deployment cannot be created or changed."""


class InvalidRollback(DeployError):
    """The model or transform ``name`` has no such version to return to, or the rollback has no reason."""

    name: str


class InvalidRedrive(DeployError):
    """Dead letters of ``topic`` cannot be redriven as requested."""

    topic: str


class InvalidSpec(DeployError):
    """A value of a deployment cannot be used, such as a topic that is both input and output."""


class LimitExceeded(InvalidSpec):
    """The deployment is over a limit, such as eight output topics or 128 environment variables."""


class DeploymentNotFound(DeployError):
    """Nothing is deployed under this name."""

    name: str


class DeploymentPaused(DeployError):
    """The deployment is paused, by a user or because too many of its records failed; or a function, by its job."""

    name: str


class UnprovenModel(DeployError):
    """A module to deploy as ``name`` has another model than is declared, or none, or was changed after its proof."""

    name: str


class ModelNotServing(DeployError):
    """The champion of the model ``name`` is not what its deployments run; ``state`` says how they disagree."""

    name: str
    state: str


class KafkaError(WasmlineError):
    """The cluster cannot be used."""


class TopicNotFound(KafkaError):
    """A topic does not exist; Wasmline never creates the topics that transforms and handlers read or write."""

    topic: str


class RecordNotFound(KafkaError):
    """A partition has no committed record at an offset: it was removed, is not there yet, or never will be."""

    topic: str
    partition: int
    offset: int


class RecordRejected(KafkaError):
    """A topic does not take a record, by its size, its time or its key: the same record is never taken."""


class CorruptRecord(KafkaError):
    """A broker returned a batch whose bytes are not those that were written; ``offset`` is that of its first record."""

    topic: str
    partition: int
    offset: int


class TopicMisconfigured(KafkaError):
    """A control topic exists with a ``setting`` under which its records would be lost or not be found."""

    topic: str
    setting: str


class BrokerUnavailable(KafkaError):
    """No broker answered in time."""

    retryable = True
    bootstrap_servers: str


class HangingTransactionEnded(BrokerUnavailable):
    """A transaction whose markers a broker had lost was ended as decided: the partitions it blocked can be reopened.

    ``partitions`` are topics and numbers of those that had it open.
    """

    partitions: tuple[tuple[str, int], ...]


class NotAuthorized(KafkaError):
    """The cluster does not permit this client's request. ``name``: the topic, group or transactional id; "" unknown."""

    name: str = ""


class InvalidKafkaConfig(KafkaError):
    """A client setting has no meaning, or no counterpart in the Java client."""

    key: str


class ClientClosed(KafkaError):
    """The Kafka client was closed before it was used."""


class InexactMetadata(KafkaError):
    """This installation is not known to read and write the metadata of committed offsets byte for byte."""


class ClientUntested(KafkaError):
    """A release of the Kafka client could not be tried now, which says nothing about it."""

    retryable = True


class ProducerIdExpired(KafkaError):
    """The cluster has forgotten a transactional producer that was idle for long; a new one can go on."""

    retryable = True


class GroupInUse(KafkaError):
    """A consumer group whose offsets are a job's alone has members; ``members`` are their client ids and hosts."""

    group: str
    members: tuple[str, ...]


class HangingTransaction(KafkaError):
    """A broker lost markers of a transaction, and its decision cannot be known: an operator has to decide.

    ``partitions`` are topics and numbers of those that have it open.
    """

    transactional_id: str
    producer_id: int
    partitions: tuple[tuple[str, int], ...]


class ConsumerError(WasmlineError):
    """The key-parallel consumer cannot do what was requested."""


class InvalidConsumerOption(ConsumerError):
    """An option of the consumer has no meaning, alone or together with the others."""

    option: str


class InvalidOffsetMetadata(ConsumerError):
    """The metadata committed with ``offset`` is not an offset map that this consumer can read; ``reason`` says why."""

    offset: int
    reason: str


class CommitFailed(ConsumerError):
    """Progress was not committed, because the group was rebalanced; its next assignment has the current state."""

    retryable = True


class MetadataTooLarge(CommitFailed, KafkaError):
    """The broker stores no metadata of this length with an offset (``offset.metadata.max.bytes``)."""


class ProducerFenced(ConsumerError):
    """Another producer took over a transactional id, or the transaction was open for longer than its time-out.

    The owner of the partitions processes their uncommitted records again.
    """


class TerminalFailure(ConsumerError):
    """For handlers to raise: a retry of the record would not help."""


class RecordsFailed(ConsumerError):
    """For handlers of several records to raise: these failed, by their place in the batch, and all others are done.

    Places count from 0, and at least one failed. ``outputs`` are those of the other records.
    """

    failures: dict[int, Exception] = {}
    outputs: Sequence[Any] = ()


class HandlerBroken(ConsumerError):
    """For handlers to raise: no record is the cause, and the consumer ends. Its records in flight are not done."""


class HandlerStuck(ConsumerError):
    """Handlers did not return when their consumer ended; their records are not done, and its process has to end."""


class HandlerCancelled(ConsumerError):
    """An asyncio handler was cancelled by something other than the consumer."""


class HandlerTimeout(ConsumerError):
    """An asyncio handler was cancelled because it took longer than ``handler_timeout_ms``."""

    limit_ms: float


class OutputRefused(ConsumerError):
    """An output can never be written: it is too large, or its topic rejects it.

    ``place`` is its position in its transaction. ``with_others``: the broker rejected its whole batch, and the cause
    may be another output.
    """

    place: int
    with_others: bool = False


class RecordGivenUp(ConsumerError):
    """A record failed for good and there is no dead-letter topic: the consumer ends rather than drop it."""

    topic: str
    partition: int
    offset: int
    attempts: int


class OffsetOutOfRange(ConsumerError):
    """A log does not have the ``offset`` to continue at: retention has removed it, or the log was truncated.

    ``start`` is the log's beginning, or where its other records begin, if it was truncated; None if unknown.
    """

    topic: str
    partition: int
    offset: int
    start: int | None


class UnsafeBroker(ConsumerError):
    """The broker shows offsets of open transactions, so that exactly-once cannot be guaranteed."""


class LocalError(WasmlineError):
    """This machine cannot run a local service."""


class PrerequisiteMissing(LocalError):
    """A program is absent or too old; ``install`` is the command to install it."""

    install: str


class ArtifactUnavailable(LocalError):
    """A pinned jar cannot be downloaded, or does not have its pinned digest."""

    retryable = True


class PortInUse(LocalError):
    """A port that was requested by number is in use."""

    port: int


class ServiceFailed(LocalError):
    """A local service ended or did not become ready; ``log`` is the end of its output."""

    log: str


class EphemeralContainer(LocalError):
    """The container ends with its task, and a driver started in it would, too; ``sign`` says how that is known."""

    sign: str


class TrainingError(WasmlineError):
    """A model cannot be trained or promoted."""


class InvalidTrainSpec(TrainingError):
    """A field of the training's order has no meaning, alone or together with the others."""

    field: str


class InvalidModel(TrainingError):
    """A model that cannot be compiled to a transform, or a module whose description of its model is malformed."""


class ModelProofFailed(TrainingError):
    """A compiled model does not predict what the model does: for ``record``, ``expected`` by way of ``path``.

    ``actual`` is None for a record without a prediction; ``path`` has a line for each tree.
    """

    record: str
    expected: float
    actual: float | None
    path: tuple[str, ...]


class NotEnoughData(TrainingError):
    """The slice of the topic holds too few usable records."""

    rows: int


class RecordsRemoved(TrainingError):
    """Records of a dataset are neither in their topic nor kept; ``offsets`` has their ranges by partition."""

    offsets: Mapping[str, tuple[int, ...]]


class TrainingSkipped(TrainingError):
    """Too few rows are new to the model: nothing was trained, and no slice recorded; ``result`` has the counts."""

    result: dict[str, Any]


class GateFailed(TrainingError):
    """The model does not meet its gate; ``report`` holds the comparison."""

    report: dict[str, Any]


class JobError(WasmlineError):
    """A stream or training job cannot run, or ended badly."""


class UnsupportedSpecVersion(JobError):
    """A document was written by another release of Wasmline."""


class ReleaseMismatch(JobError):
    """A driver and an executor have different releases of Wasmline, or of the Kafka client."""

    driver: str
    executor: str


class InvalidJob(JobError):
    """A job is ordered with an invalid name or option."""


class JobNotFound(JobError):
    """The job is unknown."""

    job: str


class JobBusy(JobError):
    """Another run of the job is alive; one job has one driver."""

    retryable = True
    job: str
    run: str


class DuplicateJob(JobError):
    """Another job, ``job``, already processes the same: a second one would process each record again."""

    job: str


class JobFailed(JobError):
    """The job ended with a failure; ``report`` is its last report, as JSON-able data."""

    report: dict[str, Any]


class LauncherUnavailable(JobError):
    """No launcher of this name sends heartbeats; ``alive`` are the names of those that do."""

    retryable = True
    launcher: str
    alive: tuple[str, ...]


class TooManyFailures(JobError):
    """More than the allowed share of a window of records failed: the deployment is the cause, not the records."""

    share: float


class SourceInvalid(JobError):
    """A file of records cannot be read, or is not of the requested format."""

    path: str


class VerificationFailed(JobError):
    """A pipeline's outputs do not account for its inputs; ``report`` holds the counts and the first offenders."""

    report: dict[str, Any]


class ProgressLost(JobError):
    """A group's progress is gone, or not where its job left it: continuing would lose records or repeat them.

    ``offset`` is the group's committed offset of the partition; None for no commit.
    """

    group: str
    topic: str
    partition: int
    offset: int | None
