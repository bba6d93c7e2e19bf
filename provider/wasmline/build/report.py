"""The report of a build: the module, its inputs and the compiler."""

from __future__ import annotations

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
        parameters = {"language": self.language, "flags": list(self.flags), "sources": list(self.sources)}
        dependencies: list[dict[str, Any]] = [
            {"name": "sources", "digest": {"sha256": self.source_digest.removeprefix("sha256:")}},
            {"name": self.toolchain},
        ]
        if self.source_revision:
            dependencies.append({"name": "git", "annotations": {"revision": self.source_revision}})
        return {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": f"{self.name}.wasm", "digest": {"sha256": self.digest.removeprefix("sha256:")}}],
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "buildType": "urn:wasmline:build:1",
                    "externalParameters": parameters,
                    "resolvedDependencies": dependencies,
                },
                "runDetails": {"builder": {"id": "urn:wasmline:builder"}},
            },
        }
