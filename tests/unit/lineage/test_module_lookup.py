"""A module of a record, as a registry describes it: whatever lies there as the provenance of its build."""

from pathlib import Path
from typing import Any

import pytest

from wasmline.lineage.module_lookup import module_origin
from wasmline.registry import ArtifactMetadata, FilesystemRegistry, digest_of

WASM = b"\0asm\1\0\0\0"
DIGEST = digest_of(WASM)


def published(root: Path, statement: dict[str, Any] | None) -> FilesystemRegistry:
    registry = FilesystemRegistry(str(root))
    registry.publish("t", "1.0.0", WASM, metadata=ArtifactMetadata(revision="abc"), provenance=statement)
    return registry


def statement(**definition: Any) -> dict[str, Any]:
    subject = {"name": "t.wasm", "digest": {"sha256": DIGEST.removeprefix("sha256:")}}
    return {"subject": [subject], "predicate": {"buildDefinition": definition}}


def test_a_version_without_the_provenance_of_its_build_has_its_digest_and_its_commit(tmp_path: Path) -> None:
    origin = module_origin(published(tmp_path, None), "t", "1.0.0", DIGEST[7:19])
    assert (origin.digest, origin.commit, origin.sources) == (DIGEST, "abc", ())
    assert origin.problems == ("t@1.0.0 was published without the provenance of its build",)


def test_a_statement_of_another_builder_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    registry = published(tmp_path, statement(resolvedDependencies=[{"name": "clang 21"}], extra=1))
    origin = module_origin(registry, "t", "1.0.0", DIGEST)
    assert (origin.toolchain, origin.language, origin.source_digest, origin.commit) == ("clang 21", None, None, "abc")
    assert origin.problems == ()


def test_what_a_build_read_is_not_its_toolchain(tmp_path: Path) -> None:
    read = [{"name": "model eta@1.0.0", "digest": {"sha256": "00"}}, {"name": "dataset", "digest": {"sha256": "11"}}]
    registry = published(tmp_path, statement(resolvedDependencies=[*read, {"name": "ziglang 0.17.0"}]))
    assert module_origin(registry, "t", "1.0.0", DIGEST).toolchain == "ziglang 0.17.0"


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        ({"subject": 5}, "cannot be read"),
        (statement(resolvedDependencies={"name": "x"}), "cannot be read"),
        ({**statement(), "subject": [{"name": "t.wasm", "digest": {"sha256": "00"}}]}, "is about another module"),
        ({**statement(), "subject": []}, "is about another module"),
    ],
)
def test_a_statement_that_is_none_or_of_another_module_is_named(
    tmp_path: Path, stored: dict[str, Any], problem: str
) -> None:
    origin = module_origin(published(tmp_path, stored), "t", "1.0.0", DIGEST)
    assert origin.digest == DIGEST
    [told] = origin.problems
    assert problem in told


@pytest.mark.parametrize(
    ("name", "version"), [("t", "2.0.0"), ("other", "1.0.0"), ("t", "unpublished"), ("..", "1.0.0")]
)
def test_a_version_that_the_registry_does_not_have_is_a_problem(tmp_path: Path, name: str, version: str) -> None:
    origin = module_origin(published(tmp_path, None), name, version, "0123456789ab")
    assert (origin.recorded_digest, origin.digest) == ("0123456789ab", None)
    assert len(origin.problems) == 1


@pytest.mark.parametrize("recorded", ["0" * 12, "", "sha256:"])
def test_a_digest_that_is_not_the_registrys_is_named(tmp_path: Path, recorded: str) -> None:
    origin = module_origin(published(tmp_path, statement()), "t", "1.0.0", recorded)
    assert "the record names the module" in origin.problems[0]
    assert DIGEST in origin.problems[0]
