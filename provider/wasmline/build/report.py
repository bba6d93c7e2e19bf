"""The report of a build: the module, its inputs and the compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """One build. ``digest`` is the module's; ``source_digest`` covers all inputs, flags and the toolchain.

    ``source_revision`` is the git commit, with ``+dirty`` if an input of the project, or its ``transform.yaml``,
    differs from the commit, or None outside git.
    ``cached``: the module came from the cache and nothing was compiled.
    """

    path: str
    digest: str
    size_bytes: int
    name: str
    version: str | None
    language: str
    toolchain: str
    flags: tuple[str, ...]
    sources: tuple[str, ...]
    source_digest: str
    source_revision: str | None
    imports: tuple[str, ...]
    abi: int
    seconds: float
    cached: bool

    def provenance(self) -> dict[str, Any]:
        """Return the build as an in-toto statement with a SLSA provenance predicate (slsa.dev/provenance/v1)."""
        return provenance_statement(
            self.name, self.digest, "urn:wasmline:build:1", self.parameters(), self.dependencies()
        )

    def parameters(self) -> dict[str, Any]:
        """Return how the module was built."""
        return {"language": self.language, "flags": list(self.flags), "sources": list(self.sources)}

    def dependencies(self) -> list[dict[str, Any]]:
        """Return what the module was built from, as resource descriptors of in-toto."""
        resolved = [digested("sources", self.source_digest), {"name": self.toolchain}]
        if self.source_revision:
            resolved.append({"name": "git", "annotations": {"revision": self.source_revision}})
        return resolved


def provenance_statement(
    name: str, digest: str, build_type: str, parameters: Mapping[str, Any], dependencies: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return an in-toto statement about the module of a transform, with a SLSA provenance predicate."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [digested(f"{name}.wasm", digest)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": build_type,
                "externalParameters": parameters,
                "resolvedDependencies": dependencies,
            },
            "runDetails": {"builder": {"id": "urn:wasmline:builder"}},
        },
    }


def digested(name: str, digest: str) -> dict[str, Any]:
    """Return in-toto's resource descriptor of named content."""
    return {"name": name, "digest": {"sha256": digest.removeprefix("sha256:")}}
