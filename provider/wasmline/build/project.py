"""A transform project: a folder with sources and ``transform.yaml``, in rpk's field names and a few of Wasmline's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wasmline.build.memory_size import parse_size
from wasmline.build.yaml_map import YamlMap
from wasmline.errors import DeployError, InvalidProject, InvalidReference
from wasmline.printable import bounded_line, printable
from wasmline.registry import Semver
from wasmline.registry.artifact_store import NAME
from wasmline.topic_partitions import TOPIC_NAME
from wasmline.wasm import ResourceLimits, TransformContext

FILE = "transform.yaml"
KEYS = (
    "name",
    "description",
    "input-topic",
    "output-topic",
    "output-topics",
    "language",
    "env",
    "compression",
    "version",
    "dead-letter-topic",
    "limits",
    "sources",
)
LIMIT_KEYS = ("memory", "timeout-ms")
LANGUAGES = (
    "c",
    "cpp",
    "go",
    "rust",
    "tinygo-no-goroutines",
    "tinygo-with-goroutines",
    "javascript",
    "typescript",
)
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformProject:
    """The validated content of ``transform.yaml``. Created by ``load_project``.

    ``version`` is None if the file has none: such a project builds and runs, but cannot be published.
    ``dead_letter_topic`` may be one of ``output_topics``; ``sources`` are globs below ``folder`` for C and C++, empty
    for the language's own.
    """

    folder: Path
    name: str
    input_topic: str
    output_topics: tuple[str, ...]
    language: str
    version: str | None = None
    description: str = ""
    dead_letter_topic: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    compression: str = "none"
    memory_bytes: int = ResourceLimits().memory_bytes
    timeout_ms: int = ResourceLimits().cpu_ms_per_record
    sources: tuple[str, ...] = ()

    def context(self) -> TransformContext:
        """Return the guest's context: the facts of its deployment."""
        return TransformContext(
            name=self.name, input_topic=self.input_topic, output_topics=self.output_topics, env=self.env
        )

    def limits(self) -> ResourceLimits:
        """Return the limits of the guest."""
        return ResourceLimits(memory_bytes=self.memory_bytes, cpu_ms_per_record=self.timeout_ms)

    def output(self, path: Path) -> Path:
        """Return the path to write a file of the project. Raises InvalidProject if a link leads out of it."""
        folder = Path(os.path.realpath((self.folder / path).parent))
        if not folder.is_relative_to(os.path.realpath(self.folder)):
            raise InvalidProject(
                f"{self.folder / path.parent} is a link that leads out of the project, to {folder}: remove it",
                path=str(self.folder / FILE),
                line=None,
            )
        return folder / path.name

    def declaration(self) -> dict[str, Any]:
        """Return the project's defaults of a deployment, as JSON-able data; stored with each published version."""
        return {
            "input-topic": self.input_topic,
            "output-topics": list(self.output_topics),
            "dead-letter-topic": self.dead_letter_topic,
            "env": dict(self.env),
            "compression": self.compression,
            "language": self.language,
            "memory-bytes": self.memory_bytes,
            "timeout-ms": self.timeout_ms,
        }


def load_project(folder: Path | str) -> TransformProject:
    """Return the project in a folder. Raises InvalidProject, which names the file and the line."""
    path = Path(folder) / FILE
    _check_folder_name(path)
    file = YamlMap.load(path, KEYS)
    limits = file.map("limits", LIMIT_KEYS)
    project = TransformProject(
        folder=path.parent,
        name=_name(file),
        version=_version(file),
        description=file.text("description") or "",
        input_topic=_topic(file, "input-topic", file.required("input-topic")),
        output_topics=_output_topics(file),
        dead_letter_topic=_dead_letter_topic(file),
        language=_choice(file, "language", file.required("language"), LANGUAGES),
        env=_env(file),
        compression=_choice(file, "compression", file.text("compression") or "none", COMPRESSIONS),
        memory_bytes=_memory(limits),
        timeout_ms=_timeout(limits),
        sources=_sources(file),
    )
    _check_bounds(file, limits, project)
    return project


def _check_folder_name(path: Path) -> None:
    """Reject a folder whose path differs as text for a compiler, for a terminal and in a report."""
    folder = str(path.parent.resolve())
    if printable(folder) != folder:
        raise InvalidProject(
            f"{bounded_line(folder)} has a control character or bytes that are not text in its name: rename the folder",
            path=str(path),
            line=None,
        )


def _name(file: YamlMap) -> str:
    name = file.required("name")
    if not NAME.fullmatch(name) or len(name) > 128:
        raise file.error(f"`name` is {name!r}: use at most 128 lower-case letters, digits and single . _ -", "name")
    return name


def _version(file: YamlMap) -> str | None:
    version = file.text("version")
    if version is not None:
        try:
            Semver.parse(version)
        except InvalidReference as error:
            raise file.error(f"`version`: {error}", "version") from error
    return version


def _topic(file: YamlMap, key: str, topic: str) -> str:
    if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
        raise file.error(f"`{key}`: {topic!r} cannot name a Kafka topic: letters, digits, . _ - up to 249", key)
    return topic


def _output_topics(file: YamlMap) -> tuple[str, ...]:
    """Return the output topics from one of rpk's two keys."""
    if "output-topic" in file and "output-topics" in file:
        raise file.error("`output-topic` is the older form of `output-topics`: give one of them", "output-topic")
    single = file.text("output-topic")
    topics = (single,) if single is not None else file.texts("output-topics")
    key = "output-topics" if single is None else "output-topic"
    if topics is None:
        raise file.error("`output-topics` is missing")
    return tuple(_topic(file, key, topic) for topic in topics)


def _dead_letter_topic(file: YamlMap) -> str | None:
    topic = file.text("dead-letter-topic")
    if topic is None:
        return None
    if topic == file.text("input-topic"):
        raise file.error(
            "`dead-letter-topic` is the input topic; dead letters would be read again", "dead-letter-topic"
        )
    return _topic(file, "dead-letter-topic", topic)


def _choice(file: YamlMap, key: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise file.error(f"`{key}` is {value!r}; choose one of {', '.join(choices)}", key)
    return value


def _sources(file: YamlMap) -> tuple[str, ...]:
    if "sources" in file and file.required("language") not in ("c", "cpp"):
        raise file.error("`sources` is for c and cpp; go and rust have go.mod and Cargo.toml", "sources")
    return file.texts("sources") or ()


def _env(file: YamlMap) -> dict[str, str]:
    variables = file.map("env")
    return {key: variables.required(key) for key in variables} if variables else {}


def _memory(limits: YamlMap | None) -> int:
    text = limits.text("memory") if limits else None
    if limits is None or text is None:
        return ResourceLimits().memory_bytes
    try:
        return parse_size(text)
    except ValueError as error:
        raise limits.error(f"`memory`: {error}", "memory") from error


def _timeout(limits: YamlMap | None) -> int:
    milliseconds = limits.integer("timeout-ms") if limits else None
    return ResourceLimits().cpu_ms_per_record if milliseconds is None else milliseconds


def _check_bounds(file: YamlMap, limits: YamlMap | None, project: TransformProject) -> None:
    """Apply the host's own rules; errors name the key that violates them."""
    try:
        TransformContext(name=project.name, input_topic=project.input_topic, output_topics=project.output_topics)
    except DeployError as error:
        raise file.error(str(error), "output-topics" if "output-topics" in file else "output-topic") from error
    try:
        project.context()
    except DeployError as error:
        raise file.error(str(error), "env") from error
    try:
        project.limits()
    except DeployError as error:
        raise (limits or file).error(str(error)) from error
