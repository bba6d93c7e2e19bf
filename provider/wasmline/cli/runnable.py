"""Resolves a command's module from a file, a project or the registry, with its declaration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from wasmline.errors import InvalidModule
from wasmline.model_reference import ModelReference
from wasmline.registry import FilesystemRegistry, parse_reference
from wasmline.transform_limits import MAX_MODULE_BYTES
from wasmline.wasm import ResourceLimits, Schema, TransformContext
from wasmline.wasm.transform_context import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnableTransform:
    """A module, its context and its limits. ``declared``: they come from a project or a version, not from defaults."""

    wasm: bytes
    context: TransformContext
    limits: ResourceLimits
    version: str | None = None
    dead_letter_topic: str | None = None
    compression: str = "none"
    model: ModelReference | None = None
    declared: bool = True

    def adjusted(
        self,
        *,
        env: tuple[tuple[str, str], ...],
        input_topic: str | None = None,
        output_topics: tuple[str, ...],
        memory: int | None,
        clock: Clock,
        schemas: tuple[Schema, ...],
        timeout_ms: int | None,
    ) -> RunnableTransform:
        """Return the transform with the overrides of the command line."""
        context = replace(
            self.context,
            env={**self.context.env, **dict(env)},
            input_topic=self.context.input_topic if input_topic is None else input_topic,
            output_topics=output_topics or self.context.output_topics,
            clock=clock,
            schemas=schemas,
        )
        limits = replace(
            self.limits,
            memory_bytes=self.limits.memory_bytes if memory is None else memory,
            cpu_ms_per_record=timeout_ms or self.limits.cpu_ms_per_record,
        )
        return replace(self, context=context, limits=limits)


def resolve_transform(transform: str, registry: str) -> RunnableTransform:
    """Return the transform that an argument names: an existing folder, file, pipe or device, else ``NAME[@VERSION]``.

    Raises InvalidModule if it cannot be read, and for a stream of more than MAX_MODULE_BYTES.
    """
    path = Path(transform)
    if path.is_dir():
        return _from_project(path)
    if path.exists():
        return _from_file(path)
    if path.suffix == ".wasm" or len(path.parts) > 1:
        raise InvalidModule(f"{path} does not exist: give a module, a project's folder or NAME@VERSION")
    return _from_registry(transform, registry)


def _from_project(folder: Path) -> RunnableTransform:
    from wasmline.build import load_project
    from wasmline.cli.build_progress import built

    project = load_project(folder)
    _, wasm = built(project)
    return RunnableTransform(
        wasm=wasm,
        context=project.context(),
        limits=project.limits(),
        version=project.version,
        dead_letter_topic=project.dead_letter_topic,
        compression=project.compression,
    )


def _from_file(path: Path) -> RunnableTransform:
    try:
        with path.open("rb") as file:
            wasm = file.read(MAX_MODULE_BYTES + 1)  # a device may have no end
    except OSError as error:
        raise InvalidModule(f"{path} cannot be read: {error.strerror}") from error
    if len(wasm) > MAX_MODULE_BYTES:
        raise InvalidModule(f"{path} has more than {MAX_MODULE_BYTES} bytes, the maximum of a module")
    context = TransformContext(name=path.stem, input_topic="input", output_topics=("output",))
    return RunnableTransform(wasm=wasm, context=context, limits=ResourceLimits(), declared=False)


def _from_registry(reference: str, url: str) -> RunnableTransform:
    name, wanted = parse_reference(reference)
    version, wasm = FilesystemRegistry(url).load(name, wanted)
    declared = version.metadata.transform
    context = TransformContext(
        name=name,
        input_topic=declared.get("input-topic", "input"),
        output_topics=tuple(declared.get("output-topics", ("output",))),
        env=declared.get("env", {}),
    )
    limits = ResourceLimits(
        memory_bytes=declared.get("memory-bytes", ResourceLimits().memory_bytes),
        cpu_ms_per_record=declared.get("timeout-ms", ResourceLimits().cpu_ms_per_record),
    )
    return RunnableTransform(
        wasm=wasm,
        context=context,
        limits=limits,
        version=version.version,
        dead_letter_topic=declared.get("dead-letter-topic"),
        compression=declared.get("compression", "none"),
        model=msgspec.convert(declared.get("model"), ModelReference | None),
    )
