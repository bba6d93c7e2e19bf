"""The specification of a deployment: its module, its topics, its limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import msgspec

from wasmline.documents import encode
from wasmline.errors import InvalidSpec, LimitExceeded
from wasmline.model_reference import ModelReference
from wasmline.provenance import ProvenanceWriter
from wasmline.registry import Version
from wasmline.wasm import ResourceLimits, Schema, TransformContext
from wasmline.wasm.transform_context import Clock

DECLARED = {
    "input_topic": "input-topic",
    "output_topics": "output-topics",
    "dead_letter_topic": "dead-letter-topic",
    "env": "env",
    "memory_bytes": "memory-bytes",
    "cpu_ms_per_record": "timeout-ms",
    "compression": "compression",
    "model": "model",
}
"""Fields of DeploymentSpec, and the keys of a published version that hold the values of its ``transform.yaml``."""

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MAX_SCHEMA_BYTES = 256 * 1024
"""Maximum size of the schemas as JSON: each batch's claim contains the deployment, in a record of at most 1 MB."""

NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
VERSION = re.compile(r"[0-9A-Za-z.+-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSpec:
    """Runs version ``version`` of ``name``, whose module has ``digest``, from one topic to one or more.

    ``dead_letter_topic`` receives the records that the host dead-letters and, if an output topic too, rejections.
    ``max_failure_share`` is the share of failed records in a window above which the deployment is paused (1.0 = never).
    ``schemas`` are the content of the guest's schema registry, ``clock`` the rule of its monotonic clock. ``model`` is
    the model that the module predicts with, if any. With ``provenance`` each output has a header that names its origin.

    Raises InvalidSpec, LimitExceeded for too many bytes of schemas, and the errors of TransformContext.
    """

    name: str
    version: str
    digest: str
    input_topic: str
    output_topics: tuple[str, ...]
    dead_letter_topic: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    memory_bytes: int = ResourceLimits().memory_bytes
    cpu_ms_per_record: int = ResourceLimits().cpu_ms_per_record
    max_failure_share: float = 0.5
    compression: str = "none"
    schemas: tuple[Schema, ...] = ()
    clock: Clock = "wasmline"
    model: ModelReference | None = None
    provenance: bool = True

    @classmethod
    def of(cls, version: Version, **chosen: Any) -> DeploymentSpec:
        """Return the deployment that a published version declares; ``chosen`` values that are not None override it.

        Raises InvalidSpec if neither names a required topic.
        """
        declared = version.metadata.transform
        values = {name: declared[key] for name, key in DECLARED.items() if declared.get(key) is not None}
        values |= {name: value for name, value in chosen.items() if value is not None}
        for needed in ("input_topic", "output_topics"):
            if not values.get(needed):
                raise InvalidSpec(f"{version} declares no {DECLARED[needed]}: set it")
        values["output_topics"] = tuple(values["output_topics"])
        values["model"] = msgspec.convert(values.get("model"), ModelReference | None)
        return cls(name=version.name, version=version.version, digest=version.digest, **values)

    def with_version(self, version: Version, current: Version | None) -> DeploymentSpec:
        """Return the same deployment of another ``version`` of the transform.

        What ``current`` declares, the version that this deploys, is taken from the other one's declaration; what was
        chosen instead stays. None: it is not known, and all stays. Raises InvalidSpec.
        """
        version_fields = ("name", "version", "digest", "model")
        names = [each.name for each in fields(self) if each.name not in version_fields]
        if current is not None:
            declared = self._declared_by(current)
            names = [name for name in names if getattr(self, name) != getattr(declared, name)]
        return replace(self._declared_by(version), **{name: getattr(self, name) for name in names})

    def _declared_by(self, version: Version) -> DeploymentSpec:
        """Return what a version declares, with the topics of this deployment where it declares none."""
        topics = {"input_topic": self.input_topic, "output_topics": self.output_topics}
        undeclared = {name: each for name, each in topics.items() if not version.metadata.transform.get(DECLARED[name])}
        return DeploymentSpec.of(version, **undeclared)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise InvalidSpec(f"{self.name!r} is not a transform name: use 1 to 128 letters, digits, '.', '_' or '-'")
        if not VERSION.fullmatch(self.version):
            raise InvalidSpec(f"{self.version[:140]!r} is not a version: use 1 to 128 letters, digits, '.', '+' or '-'")
        if not DIGEST.fullmatch(self.digest):
            raise InvalidSpec(f"{self.digest!r} is not a module digest: expected sha256: and 64 hexadecimal digits")
        if not 0 < self.max_failure_share <= 1:
            raise InvalidSpec(f"max_failure_share must be above 0 and at most 1, got {self.max_failure_share}")
        if self.input_topic == self.dead_letter_topic:
            raise InvalidSpec(f"{self.name}: {self.input_topic} is both input and dead-letter topic")
        if (size := len(encode(self.schemas))) > MAX_SCHEMA_BYTES:
            raise LimitExceeded(
                f"{self.name}: its schemas take {size} bytes as JSON; at most {MAX_SCHEMA_BYTES} can be deployed"
            )
        self.context()
        self.limits()

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics of the deployment, the input first."""
        outputs = self.output_topics
        if self.dead_letter_topic and self.dead_letter_topic not in outputs:
            outputs = (*outputs, self.dead_letter_topic)
        return (self.input_topic, *outputs)

    def provenance_writer(self) -> ProvenanceWriter | None:
        """Return the writer of the outputs' provenance, or None if they have none."""
        if not self.provenance:
            return None
        return ProvenanceWriter(
            self.input_topic, name=self.name, version=self.version, digest=self.digest, model=self.model
        )

    def context(self) -> TransformContext:
        """Return the guest's context: the facts of its deployment."""
        return TransformContext(
            name=self.name,
            input_topic=self.input_topic,
            output_topics=self.output_topics,
            env=self.env,
            clock=self.clock,
            schemas=self.schemas,
        )

    def limits(self) -> ResourceLimits:
        """Return the limits of the guest."""
        return ResourceLimits(memory_bytes=self.memory_bytes, cpu_ms_per_record=self.cpu_ms_per_record)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleOffsets:
    """Offsets of the module topic between which the chunks of a module are, ``end`` excluded."""

    begin: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.begin <= self.end:
            raise InvalidSpec(f"{self.begin} to {self.end} are no offsets of a module")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One generation of a deployment. ``reason``: why it is paused.

    ``module_offsets`` is where its module was stored; None in those of earlier releases.
    """

    spec: DeploymentSpec
    generation: int
    state: Literal["running", "paused"]
    updated_ms: int
    reason: str = ""
    module_offsets: ModuleOffsets | None = None
    spec_version: Literal[1] = 1
