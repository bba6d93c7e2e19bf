"""Publishes a build as a version in the registry."""

from __future__ import annotations

from wasmline.build.project import FILE, TransformProject
from wasmline.build.report import BuildReport
from wasmline.errors import DigestMismatch, InvalidProject
from wasmline.registry import ArtifactMetadata, Registry, Version, digest_of


def publish_build(registry: Registry, project: TransformProject, report: BuildReport, wasm: bytes) -> Version:
    """Publish a build as the version that the project's file names, with its declaration and its provenance.

    Raises InvalidProject if the file has no version, DigestMismatch if ``wasm`` is not the module of the report,
    VersionExists if the version exists with other bytes.
    """
    path = project.folder / FILE
    if project.version is None:
        raise InvalidProject(
            f"{path}: `version` is missing; a published module needs one, such as 1.0.0", path=str(path), line=None
        )
    if digest_of(wasm) != report.digest:
        raise DigestMismatch(
            f"{report.path} is not what was built: build again", expected=report.digest, actual=digest_of(wasm)
        )
    metadata = ArtifactMetadata(
        description=project.description, revision=report.source_revision, transform=project.declaration()
    )
    return registry.publish(project.name, project.version, wasm, metadata=metadata, provenance=report.provenance())
