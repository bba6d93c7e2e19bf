from pathlib import Path

import pytest

from wasmline.build import BuildReport, TransformProject, publish_build
from wasmline.errors import DigestMismatch, InvalidProject
from wasmline.registry import FilesystemRegistry, digest_of

WASM = b"\0asm\1\0\0\0"

REPORT = BuildReport(
    path="t.wasm",
    digest=digest_of(WASM),
    size_bytes=len(WASM),
    name="t",
    version="1.0.0",
    language="cpp",
    toolchain="ziglang 0.17.0",
    flags=("-O2",),
    sources=("src/main.cc",),
    source_digest="sha256:" + "0" * 64,
    source_revision="abc+dirty",
    imports=(),
    abi=2,
    seconds=1.0,
    cached=False,
)


def project(version: str | None) -> TransformProject:
    return TransformProject(
        folder=Path("t"),
        name="t",
        version=version,
        description="Says t.",
        input_topic="in",
        output_topics=("out", "dlq"),
        dead_letter_topic="dlq",
        language="cpp",
        env={"A": "1"},
    )


def test_a_version_keeps_what_a_deployment_needs_and_how_it_was_built(tmp_path: Path) -> None:
    registry = FilesystemRegistry(str(tmp_path))
    version = publish_build(registry, project("1.0.0"), REPORT, WASM)
    assert str(version) == "t@1.0.0"
    assert version.metadata.description == "Says t."
    assert version.metadata.revision == "abc+dirty"
    assert version.metadata.transform == {
        "input-topic": "in",
        "output-topics": ["out", "dlq"],
        "dead-letter-topic": "dlq",
        "env": {"A": "1"},
        "compression": "none",
        "language": "cpp",
        "memory-bytes": 64 * 2**20,
        "timeout-ms": 3000,
    }
    statement = registry.provenance("t", "1.0.0")
    assert statement == REPORT.provenance()
    assert statement["subject"] == [{"name": "t.wasm", "digest": {"sha256": digest_of(WASM).removeprefix("sha256:")}}]


def test_a_project_without_a_version_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(InvalidProject, match="`version` is missing"):
        publish_build(FilesystemRegistry(str(tmp_path)), project(None), REPORT, WASM)


def test_bytes_that_are_not_what_was_built_are_not_published(tmp_path: Path) -> None:
    with pytest.raises(DigestMismatch, match="build again"):
        publish_build(FilesystemRegistry(str(tmp_path)), project("1.0.0"), REPORT, WASM + b"\0\1\0")
