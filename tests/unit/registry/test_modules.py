import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from wasmline.control import DeploymentSpec
from wasmline.errors import (
    DeployError,
    DigestMismatch,
    InvalidArtifact,
    InvalidLayout,
    InvalidReference,
    RegistryUnavailable,
    VersionExists,
    VersionNotFound,
)
from wasmline.registry import ArtifactMetadata, FilesystemRegistry, Version, digest_of, layout_builder, parse_reference
from wasmline.registry.local_storage import LocalStorage
from wasmline.registry.object_storage import ObjectStorage

NESTED: list[Any] = []
for _ in range(100_000):
    NESTED = [NESTED]

WASM = b"\0asm\1\0\0\0"
OTHER = b"\0asm\1\0\0\0\0\4\3abc"


@pytest.fixture(params=["disk", "object store"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> FilesystemRegistry:
    """One contract, on a disk and on an fsspec object store."""
    return FilesystemRegistry(str(tmp_path) if request.param == "disk" else f"memory://{uuid.uuid4()}/registry")


def test_a_published_version_is_read_back_byte_for_byte(registry: FilesystemRegistry) -> None:
    metadata = ArtifactMetadata(
        description="Distances.",
        revision="abc123",
        licenses="Apache-2.0",
        source="https://example.org/x",
        created="2026-01-02T03:04:05Z",
        transform={"input-topic": "in", "output-topics": ["out", "dlq"]},
    )
    published = registry.publish("distance", "1.0.0", WASM, metadata=metadata)
    assert published == Version(
        name="distance", version="1.0.0", digest=digest_of(WASM), size_bytes=len(WASM), metadata=metadata
    )
    assert registry.get("distance", "1.0.0") == published
    assert registry.read("distance", "1.0.0") == WASM


def test_publishing_the_same_bytes_again_changes_nothing(registry: FilesystemRegistry) -> None:
    first = registry.publish("distance", "1.0.0", WASM, metadata=ArtifactMetadata(created="2026-01-01T00:00:00Z"))
    again = registry.publish("distance", "1.0.0", WASM, metadata=ArtifactMetadata(created="2026-02-02T00:00:00Z"))
    assert again == first


def test_a_version_is_never_given_other_bytes(registry: FilesystemRegistry) -> None:
    registry.publish("distance", "1.0.0", WASM)
    with pytest.raises(VersionExists, match=r"distance@1\.0\.0 exists .*new version") as caught:
        registry.publish("distance", "1.0.0", OTHER)
    assert (caught.value.name, caught.value.version) == ("distance", "1.0.0")
    assert registry.read("distance", "1.0.0") == WASM


DECLARED = {"input-topic": "in", "output-topics": ["out"], "env": {"A": "1"}, "memory-bytes": 2**26, "language": "c"}


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        ({"transform": DECLARED | {"output-topics": ["out", "more"]}}, "output-topics"),
        ({"transform": DECLARED | {"env": {"A": "2"}, "memory-bytes": 2**20}}, "env, memory-bytes"),
        ({"transform": DECLARED | {"dead-letter-topic": "dlq"}}, "dead-letter-topic"),
        ({"transform": DECLARED | {"language": "cpp"}}, "language"),
        ({"transform": {key: value for key, value in DECLARED.items() if key != "env"}}, "env"),
        ({"transform": DECLARED | {"new-key": [1]}}, "new-key"),
        ({"description": "Other."}, "description"),
        ({"licenses": "MIT", "source": "https://example.org/y"}, "licenses, source"),
    ],
)
def test_a_version_is_never_given_another_declaration(
    registry: FilesystemRegistry, change: dict[str, Any], differing: str
) -> None:
    known = ArtifactMetadata(description="Distances.", revision="abc", transform=DECLARED)
    first = registry.publish("distance", "1.0.0", WASM, metadata=known)
    with pytest.raises(VersionExists, match=rf"another declaration, which differs in {differing}; ") as caught:
        registry.publish("distance", "1.0.0", WASM, metadata=replace(known, **change))
    assert (caught.value.name, caught.value.version) == ("distance", "1.0.0")
    assert registry.get("distance", "1.0.0") == first


def test_when_and_of_which_commit_a_version_was_built_does_not_make_it_another(registry: FilesystemRegistry) -> None:
    known = ArtifactMetadata(revision="abc", created="2026-01-01T00:00:00Z", transform=DECLARED)
    first = registry.publish("distance", "1.0.0", WASM, metadata=known, provenance={"_type": "x"})
    later = replace(known, revision="def", created="2026-02-02T00:00:00Z", transform={**DECLARED, "env": {"A": "1"}})
    assert registry.publish("distance", "1.0.0", WASM, metadata=later, provenance={"_type": "y"}) == first
    unset = replace(known, transform=DECLARED | {"dead-letter-topic": None})
    assert registry.publish("distance", "1.0.0", WASM, metadata=unset) == first


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"created": "yesterday"}, "RFC3339"),
        ({"created": "2026-01-01"}, "RFC3339"),
        ({"created": "2026-01-01T00:00:00"}, "timezone"),
        ({"description": "a\x1b[2J"}, r"image\.description' contains the control character U\+001B"),
        ({"description": "\ud800"}, "surrogates not allowed"),
        ({"revision": "a\x9b"}, r"U\+009B"),
        ({"transform": {"env": {"A": 1}}}, "the annotation 'wasmline.transform': Expected `str`, got `int`"),
        ({"transform": {"output-topics": []}}, "length >= 1"),
        ({"transform": {"input-topic": "a b"}}, "matching regex"),
        ({"transform": {"x": object()}}, "Encoding objects of type object"),
        ({"transform": {"x": NESTED}}, "nested too deeply|recursion"),
        ({"transform": {1: "x"}}, "str keys"),
        ({"transform": {"env": {"A": float("nan")}}}, "Expected `str`, got `null`"),
        ({"description": 5}, "Expected `str`, got `int`"),
        ({"licenses": ["MIT"]}, "Expected `str`, got `array`"),
    ],
)
def test_metadata_that_could_not_be_read_again_are_not_published(
    registry: FilesystemRegistry, change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidArtifact, match=rf"distance@1\.0\.0 cannot be published: .*{complaint}"):
        registry.publish("distance", "1.0.0", WASM, metadata=ArtifactMetadata(**change))
    assert registry.names() == []


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ({"x": object()}, "Encoding objects of type object"),
        ({"x": NESTED}, "nested too deeply|recursion"),
        ({1: "x"}, "str keys"),
        ({"x": "\ud800"}, "surrogates not allowed"),
        (["x"], "Expected `object`, got `array`"),
    ],
)
def test_provenance_that_could_not_be_read_again_is_not_published(
    registry: FilesystemRegistry, statement: Any, complaint: str
) -> None:
    with pytest.raises(InvalidArtifact, match=rf"distance@1\.0\.0 cannot be published: .*in-toto.*({complaint})"):
        registry.publish("distance", "1.0.0", WASM, provenance=statement)
    assert registry.names() == []


BEYOND_A_DEPLOYMENT: list[tuple[dict[str, Any], str]] = [
    ({"memory-bytes": 65535}, ">= 65536"),
    ({"memory-bytes": 2**32 + 1}, "<= 4294967296"),
    ({"timeout-ms": 0}, ">= 1"),
    ({"timeout-ms": 86_400_001}, "<= 86400000"),
    ({"env": {str(number): "x" for number in range(129)}}, "length <= 128"),
    ({"env": {"": "x"}}, "a name has 1 to 128 bytes"),
    ({"env": {"é" * 65: "x"}}, "a name has 1 to 128 bytes"),
    ({"env": {"A": ""}}, "value 1 to 2048"),
    ({"env": {"A": "é" * 1025}}, "value 1 to 2048"),
    ({"env": {"A=B": "x"}}, "is not a valid name"),
    ({"env": {"REDPANDA_INPUT_TOPIC": "x"}}, "is not a valid name"),
    ({"output-topics": ["out", "out"]}, "named twice"),
    ({"output-topics": ["out", "in"]}, "in is both input and output"),
    ({"dead-letter-topic": "in"}, "in is both input and output"),
    ({"output-topics": [str(number) for number in range(9)]}, "length <= 8"),
]


@pytest.mark.parametrize(("change", "complaint"), BEYOND_A_DEPLOYMENT)
def test_what_no_deployment_would_take_is_not_published(
    registry: FilesystemRegistry, change: dict[str, Any], complaint: str
) -> None:
    transform = {"input-topic": "in", "output-topics": ["out"], **change}
    metadata = ArtifactMetadata(transform=transform)
    forged = Version(name="distance", version="1.0.0", digest=digest_of(WASM), size_bytes=8, metadata=metadata)
    with pytest.raises(DeployError):
        DeploymentSpec.of(forged)
    with pytest.raises(InvalidArtifact, match=f"the annotation 'wasmline.transform': .*{complaint}"):
        registry.publish("distance", "1.0.0", WASM, metadata=metadata)
    assert registry.names() == []


def test_the_largest_declaration_can_be_published_and_deployed(registry: FilesystemRegistry) -> None:
    env = {f"{number:0128}": "x" * 2048 for number in range(128)}
    for memory, timeout in ((65536, 1), (2**32, 86_400_000)):
        limits = {"memory-bytes": memory, "timeout-ms": timeout}
        transform = {"input-topic": "i" * 249, "output-topics": [f"{number}" for number in range(8)], "env": env}
        metadata = ArtifactMetadata(transform=transform | limits)
        published = registry.publish("distance", f"1.0.{timeout}", WASM, metadata=metadata)
        assert DeploymentSpec.of(published).memory_bytes == memory


@pytest.mark.parametrize(
    "epoch", ["yesterday", "-1", "1.5", "1e9", "1_000", " 1", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 12]
)
def test_a_source_date_that_is_not_a_count_of_seconds_is_named(
    registry: FilesystemRegistry, monkeypatch: pytest.MonkeyPatch, epoch: str
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(InvalidArtifact, match=r"SOURCE_DATE_EPOCH is .*: set it to whole seconds since 1970-01-01"):
        registry.publish("distance", "1.0.0", WASM)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "")
    assert registry.publish("distance", "1.0.0", WASM).metadata.created is not None


def test_what_is_too_large_to_be_read_again_is_not_published(
    registry: FilesystemRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout_builder, "MAX_LAYER_BYTES", len(OTHER) - 1)
    with pytest.raises(InvalidArtifact, match=r"a application/wasm of 14 bytes: the registry allows 13"):
        registry.publish("distance", "1.0.0", OTHER)
    with pytest.raises(InvalidArtifact, match=r"a application/vnd.in-toto\+json: it takes more than 4194304 bytes"):
        registry.publish("distance", "1.0.0", WASM, provenance={"sources": "x" * 2**22})
    assert registry.names() == []


def test_versions_come_in_the_order_of_precedence_and_the_latest_is_a_release(registry: FilesystemRegistry) -> None:
    for version in ["1.10.0", "2.0.0-rc.1", "1.9.0", "1.2.0"]:
        registry.publish("distance", version, WASM)
    registry.publish("eta", "0.1.0-alpha", WASM)
    assert registry.versions("distance") == ["1.2.0", "1.9.0", "1.10.0", "2.0.0-rc.1"]
    assert registry.latest("distance").version == "1.10.0"
    assert registry.latest("eta").version == "0.1.0-alpha"
    assert registry.names() == ["distance", "eta"]


def test_an_unknown_version_is_answered_with_those_that_exist(registry: FilesystemRegistry) -> None:
    registry.publish("distance", "1.0.0", WASM)
    with pytest.raises(VersionNotFound, match=r"no distance@1\.0\.1 .*there is distance@1\.0\.0"):
        registry.read("distance", "1.0.1")
    with pytest.raises(VersionNotFound, match="did you mean distance"):
        registry.get("distence", "1.0.0")
    with pytest.raises(VersionNotFound, match="no zebra among"):
        registry.latest("zebra")


def test_an_empty_registry_says_so(registry: FilesystemRegistry) -> None:
    assert registry.names() == []
    with pytest.raises(VersionNotFound, match="there are none"):
        registry.latest("distance")


@pytest.mark.parametrize("name", ["../escape", "a/b", "Upper", "", ".hidden", "a" * 9_999, "with blank", "a\0\x1b[2J"])
def test_a_name_that_is_no_name_is_refused(registry: FilesystemRegistry, name: str) -> None:
    with pytest.raises(InvalidReference, match="cannot be a name") as caught:
        registry.publish(name, "1.0.0", WASM)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "version", ["1.0", "latest", "../1.0.0", "1.0.0+meta", "9" * 5000 + ".0.0", "1.0.0-" + "9" * 5000]
)
def test_a_version_that_is_not_semantic_is_refused(registry: FilesystemRegistry, version: str) -> None:
    with pytest.raises(InvalidReference, match="semantic version"):
        registry.publish("distance", version, WASM)


def test_provenance_is_kept_beside_the_module(registry: FilesystemRegistry) -> None:
    statement = {"_type": "https://in-toto.io/Statement/v1", "subject": [{"name": "distance"}]}
    registry.publish("distance", "1.0.0", WASM, provenance=statement)
    registry.publish("distance", "1.0.1", OTHER)
    assert registry.provenance("distance", "1.0.0") == statement
    assert registry.provenance("distance", "1.0.1") is None


def test_bytes_that_changed_after_publishing_are_never_handed_out(tmp_path: Path) -> None:
    registry = FilesystemRegistry(str(tmp_path))
    published = registry.publish("distance", "1.0.0", WASM)
    blob = tmp_path / "modules/distance/1.0.0/blobs/sha256" / published.digest.removeprefix("sha256:")
    changed = WASM[:-1] + b"\1"
    for data, actual in ((changed, digest_of(changed)), (OTHER, "longer than 8 bytes"), (b"", "shorter than 8 bytes")):
        blob.write_bytes(data)
        with pytest.raises(DigestMismatch, match="damaged or changed") as caught:
            registry.read("distance", "1.0.0")
        assert (caught.value.expected, caught.value.actual) == (digest_of(WASM), actual)
    blob.unlink()
    with pytest.raises(DigestMismatch, match="missing"):
        registry.read("distance", "1.0.0")


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    registry = FilesystemRegistry(str(tmp_path))
    registry.publish("distance", "1.0.0", WASM)
    (tmp_path / "modules/distance/1.0.0/index.json").write_text("{}")
    with pytest.raises(InvalidLayout, match=r"distance/1\.0\.0 in .* is not an OCI image layout") as caught:
        registry.get("distance", "1.0.0")
    assert caught.value.path == "modules/distance/1.0.0/index.json"
    assert not caught.value.retryable


def test_the_folder_is_an_oci_image_layout_with_the_media_types_for_wasm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    FilesystemRegistry(str(tmp_path)).publish("distance", "1.0.0", WASM, provenance={"_type": "x"})
    layout = tmp_path / "modules/distance/1.0.0"

    def blob(descriptor: dict[str, Any]) -> bytes:
        data: bytes = (layout / "blobs/sha256" / descriptor["digest"].removeprefix("sha256:")).read_bytes()
        assert digest_of(data) == descriptor["digest"]
        assert len(data) == descriptor["size"]
        return data

    assert json.loads((layout / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    module, about = json.loads((layout / "index.json").read_bytes())["manifests"]
    assert module["annotations"] == {"org.opencontainers.image.ref.name": "1.0.0"}
    manifest = json.loads(blob(module))
    assert manifest["schemaVersion"] == 2
    assert manifest["config"]["mediaType"] == "application/vnd.wasm.config.v0+json"
    assert json.loads(blob(manifest["config"])) == {
        "created": "2023-11-14T22:13:20Z",
        "architecture": "wasm",
        "os": "wasip1",
        "layerDigests": [digest_of(WASM)],
    }
    assert [layer["mediaType"] for layer in manifest["layers"]] == ["application/wasm"]
    assert blob(manifest["layers"][0]) == WASM
    assert manifest["annotations"]["org.opencontainers.image.version"] == "1.0.0"
    assert manifest["annotations"]["org.opencontainers.image.created"] == "2023-11-14T22:13:20Z"
    assert about["artifactType"] == "application/vnd.in-toto+json"
    attached = json.loads(blob(about))
    assert attached["subject"]["digest"] == module["digest"]
    assert blob(attached["config"]) == b"{}"
    assert json.loads(blob(attached["layers"][0])) == {"_type": "x"}


def test_equal_publications_give_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    trees = []
    for root in (tmp_path / "a", tmp_path / "b"):
        FilesystemRegistry(str(root)).publish("distance", "1.0.0", WASM, provenance={"b": 1, "a": 2})
        trees.append({str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()})
    assert trees[0] == trees[1]


def test_of_many_publishers_of_one_version_exactly_one_wins(tmp_path: Path) -> None:
    registry = FilesystemRegistry(str(tmp_path))
    contents = [WASM + bytes([0, 2, 1, index]) for index in range(8)]
    outcomes: list[bytes] = []
    barrier = threading.Barrier(len(contents))

    def publish(content: bytes) -> None:
        mine = FilesystemRegistry(registry.url)
        barrier.wait()
        try:
            mine.publish("distance", "1.0.0", content)
        except VersionExists:
            return
        outcomes.append(content)

    threads = [threading.Thread(target=publish, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [registry.read("distance", "1.0.0")]


def test_a_publisher_that_a_store_let_be_overwritten_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers that look before they write let two publishers write at once; the later one's version stands."""
    mine, other = (f"memory://{uuid.uuid4()}" for _ in range(2))
    FilesystemRegistry(other).publish("distance", "1.0.0", OTHER)
    create = ObjectStorage.create

    def overwritten(self: ObjectStorage, folder: str, files: Sequence[tuple[str, bytes]]) -> bool:
        created = create(self, folder, files)
        memory = fsspec.filesystem("memory")
        memory.copy(f"{other}/{folder}/", f"{mine}/{folder}/", recursive=True)
        return created

    monkeypatch.setattr(ObjectStorage, "create", overwritten)
    with pytest.raises(VersionExists, match="with other bytes"):
        FilesystemRegistry(mine).publish("distance", "1.0.0", WASM)
    assert FilesystemRegistry(mine).read("distance", "1.0.0") == OTHER


def test_a_version_and_its_bytes_are_those_of_one_index(
    registry: FilesystemRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = registry.publish("distance", "1.0.0", WASM, provenance={"_type": "x"})
    read: list[str] = []
    for storage in (LocalStorage, ObjectStorage):
        monkeypatch.setattr(storage, "read", noted(storage.read, read))
    assert registry.load("distance", "1.0.0") == (published, WASM)
    assert len(read) == len(set(read))
    assert "modules/distance/1.0.0/index.json" in read


def noted(method: Callable[[Any, str, int], bytes | None], paths: list[str]) -> Callable[[Any, str, int], bytes | None]:
    def read(self: Any, path: str, limit: int) -> bytes | None:
        paths.append(path)
        return method(self, path, limit)

    return read


FULL_DISK = """
import resource, sys
from wasmline.errors import RegistryUnavailable
from wasmline.registry import FilesystemRegistry
resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, 64 * 1024))
try:
    FilesystemRegistry(sys.argv[1]).publish("big", "1.0.0", bytes(1024 * 1024))
except RegistryUnavailable as error:
    print(error)
"""


def test_a_disk_that_refuses_leaves_no_version_and_no_rubbish(tmp_path: Path) -> None:
    """The kernel's file-size limit stands for the full disk: the write of the module's blob fails half way."""
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "refused: File too large; nothing was published" in ended.stdout
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    registry = FilesystemRegistry(str(tmp_path))
    assert registry.versions("big") == []
    assert registry.publish("big", "1.0.0", WASM).digest == digest_of(WASM)


def test_a_version_that_is_still_being_written_is_not_visible(tmp_path: Path) -> None:
    registry = FilesystemRegistry(str(tmp_path))
    registry.publish("distance", "1.0.0", WASM)
    (tmp_path / "modules/distance/1.0.0").rename(tmp_path / "modules/distance/.1.0.0.abc")
    assert registry.versions("distance") == []
    assert registry.names() == []


def test_an_upload_to_an_object_store_that_stopped_half_way_is_not_visible_and_can_be_repeated() -> None:
    root = f"memory://{uuid.uuid4()}"
    registry = FilesystemRegistry(root)
    published = registry.publish("distance", "1.0.0", WASM)
    fsspec.filesystem("memory").rm(f"{root}/modules/distance/1.0.0/index.json")
    assert registry.versions("distance") == []
    assert registry.publish("distance", "1.0.0", WASM).digest == published.digest


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RegistryUnavailable, match=r"file refused: Not a directory"):
        FilesystemRegistry(str(tmp_path / "file")).publish("distance", "1.0.0", WASM)


def test_an_unknown_url_scheme_is_named() -> None:
    with pytest.raises(
        RegistryUnavailable, match=r"the registry at nowhere://x cannot be opened: .*Protocol not known"
    ):
        FilesystemRegistry("nowhere://x")


def test_whatever_a_driver_raises_for_a_url_is_named() -> None:
    with pytest.raises(RegistryUnavailable, match="cannot be opened: IsADirectoryError"):
        FilesystemRegistry("zip:///")


@pytest.mark.parametrize("driver", ["simplecache", "blockcache", "zip"])
def test_a_chain_of_drivers_is_refused(tmp_path: Path, driver: str) -> None:
    with pytest.raises(RegistryUnavailable, match="chained fsspec URL"):
        FilesystemRegistry(f"{driver}::file://{tmp_path}")


def test_a_reference_has_a_name_and_perhaps_a_version() -> None:
    assert parse_reference("distance@1.0.0") == ("distance", "1.0.0")
    assert parse_reference("distance") == parse_reference("distance@latest") == ("distance", None)
    with pytest.raises(InvalidReference, match="NAME@VERSION"):
        parse_reference("distance@")
