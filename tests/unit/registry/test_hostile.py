"""A registry whose writer is hostile: each malformation of a published version is one error, and nothing else."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.core import url_to_fs

from wasmline.errors import DigestMismatch, InvalidLayout, RegistryError
from wasmline.registry import ArtifactMetadata, FilesystemRegistry, Version, digest_of, local_storage, object_storage
from wasmline.registry.oci_manifest import MAX_DOCUMENT_BYTES

WASM = b"\0asm\1\0\0\0"
DECLARED = {"input-topic": "in", "output-topics": ["out", "dlq"], "dead-letter-topic": "dlq", "env": {"K": "1"}}
INDEX = "index.json"
MARKER = "oci-layout"


def publish(url: str) -> Version:
    """Publish ``a@1.0.0``, with provenance."""
    metadata = ArtifactMetadata(description="Adds.", revision="abc", transform=DECLARED)
    return FilesystemRegistry(url).publish("a", "1.0.0", WASM, metadata=metadata, provenance={"_type": "x"})


class StoredLayout:
    """The files of ``a@1.0.0`` in the registry at ``url``; paths are relative to its folder."""

    def __init__(self, url: str, version: Version) -> None:
        self.registry = FilesystemRegistry(url)
        self.version = version
        self.filesystem, root = url_to_fs(url)
        self.folder = f"{root}/modules/a/1.0.0"

    def read(self, path: str) -> bytes:
        return bytes(self.filesystem.cat_file(f"{self.folder}/{path}"))

    def write(self, path: str, data: bytes) -> None:
        self.filesystem.pipe_file(f"{self.folder}/{path}", data)

    def remove(self, path: str) -> None:
        self.filesystem.rm(f"{self.folder}/{path}")

    def change_index(self, change: Callable[[Any], object]) -> None:
        """Change the index, which has no digest."""
        index = json.loads(self.read(INDEX))
        change(index)
        self.write(INDEX, json.dumps(index).encode())

    def forge_manifest(self, change: Callable[[Any], object], *, place: int = 0) -> None:
        """Change a manifest of the index, and the digests that lead to it."""
        descriptor = json.loads(self.read(INDEX))["manifests"][place]
        document = json.loads(self.read(blob(descriptor)))
        change(document)
        self.forge_manifest_bytes(json.dumps(document).encode(), place=place)

    def forge_manifest_bytes(self, data: bytes, *, place: int = 0) -> None:
        forged = self.stored(data)
        self.change_index(lambda index: index["manifests"][place].update(forged))
        if place == 0:
            self.forge_manifest(lambda manifest: manifest["subject"].update(forged), place=1)

    def forge_config(self, data: bytes) -> None:
        """Give the manifest another configuration."""
        self.forge_manifest(lambda manifest: manifest["config"].update(self.stored(data)))

    def stored(self, data: bytes) -> dict[str, Any]:
        """Store a blob and return the digest and size of its descriptor."""
        descriptor = {"digest": digest_of(data), "size": len(data)}
        self.write(blob(descriptor), data)
        return descriptor


def blob(descriptor: dict[str, Any]) -> str:
    return "blobs/sha256/" + str(descriptor["digest"]).removeprefix("sha256:")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Version]:
    root = tmp_path_factory.mktemp("registry")
    return root, publish(str(root))


@pytest.fixture(params=["disk", "object store"])
def stored(request: pytest.FixtureRequest, tmp_path: Path, template: tuple[Path, Version]) -> StoredLayout:
    source, version = template
    if request.param == "disk":
        shutil.copytree(source, tmp_path / "registry")
        return StoredLayout(str(tmp_path / "registry"), version)
    url = f"memory://{uuid.uuid4()}/registry"
    for path in source.rglob("*"):
        if path.is_file():
            fsspec.filesystem("memory").pipe_file(f"{url}/{path.relative_to(source)}", path.read_bytes())
    return StoredLayout(url, version)


Change = Callable[[StoredLayout], object]

NESTED = b"[" * 200_000


def in_index(change: Callable[[Any], object]) -> Change:
    return lambda stored: stored.change_index(change)


def in_module(change: Callable[[Any], object]) -> Change:
    """Change the descriptor of the module's manifest."""
    return in_index(lambda index: change(index["manifests"][0]))


def in_manifest(change: Callable[[Any], object]) -> Change:
    return lambda stored: stored.forge_manifest(change)


def in_layer(change: Callable[[Any], object]) -> Change:
    return in_manifest(lambda manifest: change(manifest["layers"][0]))


def in_provenance(change: Callable[[Any], object]) -> Change:
    return lambda stored: stored.forge_manifest(change, place=1)


def annotated(key: str, text: object) -> Change:
    return in_manifest(lambda manifest: manifest["annotations"].update({key: text}))


def declared(**changes: object) -> Change:
    """Publish another declaration in the name of the version."""
    declaration = {key.replace("_", "-"): value for key, value in changes.items()}
    return annotated("wasmline.transform", json.dumps(DECLARED | declaration))


def configured(**changes: object) -> Change:
    config = {
        "created": "2026-01-01T00:00:00Z",
        "architecture": "wasm",
        "os": "wasip1",
        "layerDigests": [digest_of(WASM)],
    }
    return lambda stored: stored.forge_config(json.dumps(config | changes).encode())


def contents(path: str, data: bytes) -> Change:
    return lambda stored: stored.write(path, data)


def digest(text: object) -> Change:
    return in_module(lambda descriptor: descriptor.update(digest=text))


def swap_manifests(index: Any) -> None:
    module, provenance = index["manifests"]
    for key in ("digest", "size"):
        module[key], provenance[key] = provenance[key], module[key]


OCI = "org.opencontainers.image."

MALFORMATIONS: dict[str, tuple[Change, str]] = {
    # documents that are none
    "empty index": (contents(INDEX, b""), "index.json: Expecting value"),
    "index that is text": (contents(INDEX, b"hello"), "index.json: Expecting value"),
    "index in latin-1": (contents(INDEX, b'{"a":"\xe9"}'), "index.json: 'utf-8' codec"),
    "index in UTF-16": (lambda stored: stored.write(INDEX, stored.read(INDEX).decode().encode("utf-16")), "utf-8"),
    "index cut short": (lambda stored: stored.write(INDEX, stored.read(INDEX)[:-9]), "index.json: Unterminated"),
    "index nested": (contents(INDEX, NESTED), "index.json: it is nested too deeply"),
    "index nested in an unknown key": (
        contents(INDEX, b'{"x":' + NESTED + b"]" * len(NESTED) + b"}"),
        "index.json: it is nested too deeply",
    ),
    "index with a huge number": (contents(INDEX, b'{"schemaVersion":' + b"9" * 5000 + b"}"), "index.json: Exceeds"),
    "index with a list": (contents(INDEX, b"[]"), "index.json: Expected `object`, got `array`"),
    "index with null": (contents(INDEX, b"null"), "index.json: Expected `object`, got `null`"),
    "index with a repeated key": (contents(INDEX, b'{"schemaVersion":2,"schemaVersion":2}'), "'schemaVersion' is rep"),
    "index that is too large": (contents(INDEX, b" " * (MAX_DOCUMENT_BYTES + 1)), "index.json: it takes more"),
    "marker missing": (lambda stored: stored.remove(MARKER), "oci-layout: Expecting value"),
    "marker of another version": (contents(MARKER, b'{"imageLayoutVersion":"2.0.0"}'), "oci-layout: Invalid enum"),
    "marker that is too large": (contents(MARKER, b" " * (MAX_DOCUMENT_BYTES + 1)), "oci-layout: it takes"),
    # the index
    "index of another schema": (in_index(lambda index: index.update(schemaVersion=1)), r"\$.schemaVersion"),
    "index of another media type": (in_index(lambda index: index.update(mediaType="x")), r"\$.mediaType"),
    "index without manifests": (in_index(lambda index: index.update(manifests=[])), "length >= 1"),
    "index of strings": (in_index(lambda index: index.update(manifests=["x"])), "Expected `object`, got `str`"),
    "index with a manifest that is an object": (in_index(lambda index: index.update(manifests={})), "`array`"),
    "index of too many manifests": (in_index(lambda index: index.update(manifests=index["manifests"] * 99)), "<= 32"),
    "version of another name": (in_module(lambda it: it["annotations"].update({f"{OCI}ref.name": "9.9.9"})), "9.9.9"),
    "version named twice": (in_index(lambda index: index["manifests"].append(index["manifests"][0])), "expected one"),
    "version without a name": (in_module(lambda it: it.pop("annotations")), "expected one manifest named 1.0.0"),
    "manifest of another media type": (in_module(lambda it: it.update(mediaType="text/x")), "found .'text/x'"),
    "marker of a version that is too long": (
        contents(MARKER, b'{"imageLayoutVersion":"' + b"9" * 2**20 + b'"}'),
        r"oci-layout: Invalid enum value '9+ \.\.\. 9+' - at .*; restore",
    ),
    "name that is a number": (in_module(lambda it: it["annotations"].update({f"{OCI}ref.name": 1})), "`str`"),
    "annotations that are a list": (in_module(lambda it: it.update(annotations=[])), "Expected `object`"),
    # descriptors
    "digest with a path": (digest("sha256:../../../../../../etc/passwd"), "etc/passwd' is not supported"),
    "digest with an absolute path": (digest("sha256:/etc/passwd"), "is not supported"),
    "digest with a path for its algorithm": (digest("../../..:x"), "is not supported"),
    "digest of SHA-512": (digest("sha512:" + "0" * 128), "'sha512:0+' is not supported: expected sha256"),
    "digest in capitals": (digest("sha256:" + "A" * 64), "is not supported"),
    "digest with a line feed": (digest("sha256:" + "0" * 64 + "\n"), "is not supported"),
    "digest that is too short": (digest("sha256:" + "0" * 63), "is not supported"),
    "digest in other digits": (digest("sha256:" + "\N{FULLWIDTH DIGIT ONE}" * 64), "is not supported"),
    "digest with NUL": (digest("sha256:\0" + "0" * 63), "is not supported"),
    "digest that is empty": (digest(""), "is not supported"),
    "digest that is a number": (digest(5), "Expected `str`, got `int`"),
    "digest of nothing": (digest("sha256:" + "0" * 64), "is missing"),
    "size too small": (in_module(lambda it: it.update(size=1)), "is longer than 1 bytes"),
    "size too large": (in_module(lambda it: it.update(size=it["size"] + 1)), "is shorter than"),
    "size of a layer too small": (in_layer(lambda it: it.update(size=1)), "is longer than 1 bytes"),
    "size of a layer too large": (in_layer(lambda it: it.update(size=2**20)), "is shorter than"),
    "size below zero": (in_module(lambda it: it.update(size=-1)), "`int` >= 0"),
    "size beyond any disk": (in_layer(lambda it: it.update(size=2**70)), "`int` <= 67108864"),
    "size beyond the limit": (in_layer(lambda it: it.update(size=2**26 + 1)), "`int` <= 67108864"),
    "size of a document beyond the limit": (
        in_manifest(lambda it: it["config"].update(size=MAX_DOCUMENT_BYTES + 1)),
        "its descriptor says 4194305 bytes",
    ),
    "sizes of manifests beyond the limit": (
        in_module(lambda it: it.update(size=MAX_DOCUMENT_BYTES)),
        "its manifests take more than 4194304 bytes together",
    ),
    "size that is text": (in_module(lambda it: it.update(size="1")), "Expected `int`, got `str`"),
    "size that is a fraction": (in_module(lambda it: it.update(size=1.5)), "Expected `int`, got `float`"),
    # manifests
    "manifests swapped": (in_index(swap_manifests), "its subject is not"),
    "manifest that is not JSON": (lambda stored: stored.forge_manifest_bytes(b"\xff"), "blobs/sha256/.*: 'utf-8'"),
    "manifest nested": (lambda stored: stored.forge_manifest_bytes(NESTED), "nested too deeply"),
    "manifest with a repeated annotation": (
        lambda stored: stored.forge_manifest_bytes(b'{"annotations":{"a":"1","a":"2"}}'),
        "the key 'a' is repeated",
    ),
    "manifest without layers": (in_manifest(lambda it: it.update(layers=[])), "length >= 1"),
    "manifest with two layers": (in_manifest(lambda it: it.update(layers=it["layers"] * 2)), "expected the media"),
    "manifest with an object for layers": (in_manifest(lambda it: it.update(layers={})), "Expected `array`"),
    "manifest of a schema in text": (in_manifest(lambda it: it.update(schemaVersion="2")), r"\$.schemaVersion"),
    "manifest of another kind": (in_manifest(lambda it: it.update(mediaType="x")), r"\$.mediaType"),
    "manifest without configuration": (in_manifest(lambda it: it.pop("config")), "`config`"),
    "manifest with a number for an annotation": (annotated("x", 1), r"Expected `str`, got `int` - at `\$.annotations"),
    "manifest of another name": (annotated(f"{OCI}title", "b"), "it is the manifest of 'b@1.0.0'"),
    "manifest of another version": (annotated(f"{OCI}version", "9.9.9"), "it is the manifest of 'a@9.9.9'"),
    "manifest without a version": (in_manifest(lambda it: it["annotations"].pop(f"{OCI}version")), "'a@'"),
    "layer that is not Wasm": (in_layer(lambda it: it.update(mediaType="text/html")), "found .*'text/html'"),
    "layer with a path for a digest": (in_layer(lambda it: it.update(digest="sha256:../../x")), "is not supported"),
    "layer of other bytes": (
        lambda stored: stored.write(blob({"digest": stored.version.digest}), b"\0asm\2\0\0\0"),
        "was damaged or changed",
    ),
    # the configuration
    "configuration that is not an object": (lambda stored: stored.forge_config(b"[]"), "Expected `object`"),
    "configuration that is not Wasm's": (
        in_manifest(lambda it: it["config"].update(mediaType="application/vnd.oci.image.config.v1+json")),
        "expected the media types",
    ),
    "configuration of another processor": (configured(architecture="amd64"), "Invalid enum value 'amd64'"),
    "configuration of another system": (configured(os="linux"), "Invalid enum value 'linux'"),
    "configuration of other bytes": (configured(layerDigests=[digest_of(b"")]), "its configuration is not that of"),
    "configuration without digests": (configured(layerDigests=None), "Expected `array`"),
    "configuration without a time": (configured(created="yesterday"), "RFC3339"),
    # what is declared
    "declaration cut short": (annotated("wasmline.transform", "{"), "the annotation 'wasmline.transform': Expecting"),
    "declaration that is a list": (annotated("wasmline.transform", "[]"), "Expected `object`, got `array`"),
    "declaration that is null": (annotated("wasmline.transform", "null"), "Expected `object`, got `null`"),
    "declaration nested": (annotated("wasmline.transform", '{"x":' + "[" * 10**5), "nested too deeply"),
    "declaration with a repeated key": (annotated("wasmline.transform", '{"env":{},"env":{}}'), "'env' is repeated"),
    "variable that is a number": (declared(env={"A": 1}), "Expected `str`, got `int`"),
    "variables that are a list": (declared(env=[]), "Expected `object`"),
    "variables that are null": (declared(env=None), "Expected `object`, got `null`"),
    "variable with an escape sequence": (declared(env={"A": "\x1b[2J"}), "'A' contains a control character"),
    "variable named with an escape sequence": (
        declared(env={"\x1b]0;": "1"}),
        r"'\\x1b\]0;' contains a control character",
    ),
    "memory that is text": (declared(memory_bytes="x"), "Expected `int`, got `str`"),
    "memory beyond the address space": (declared(memory_bytes=2**33), "`int` <= 4294967296"),
    "memory below a page": (declared(memory_bytes=1), "`int` >= 65536"),
    "time of more than a day": (declared(timeout_ms=2**31), "`int` <= 86400000"),
    "variable of the host": (declared(env={"REDPANDA_INPUT_TOPIC": "x"}), "'REDPANDA_INPUT_TOPIC' is not a valid name"),
    "output topic that is the input": (declared(output_topics=["in"]), "in is both input and output"),
    "time that is a fraction": (declared(timeout_ms=0.5), "Expected `int`, got `float`"),
    "input topic that is null": (declared(input_topic=None), "Expected `str`, got `null`"),
    "input topic with a path": (declared(input_topic="../x"), "matching regex"),
    "input topic with an escape sequence": (declared(input_topic="a\x1b[2J"), "matching regex"),
    "input topic with a line feed": (declared(input_topic="a\n"), "matching regex"),
    "output topics that are text": (declared(output_topics="out"), "Expected `array`"),
    "no output topics": (declared(output_topics=[]), "length >= 1"),
    "nine output topics": (declared(output_topics=[str(n) for n in range(9)]), "length <= 8"),
    "dead-letter topic that is a list": (declared(dead_letter_topic=["x"]), "Expected `str"),
    "compression of another kind": (declared(compression="rot13"), "Invalid enum value 'rot13'"),
    "language with an escape sequence": (declared(language="c\x1b[2J"), "matching regex"),
    "description with an escape sequence": (
        annotated(f"{OCI}description", "\x1b]0;owned\x07"),
        "'org.opencontainers.image.description' contains the control character U\\+001B",
    ),
    "annotation with a C1 control": (annotated("note", "\x9b2J"), r"contains the control character U\+009B"),
    # attachments
    "provenance about another module": (
        in_provenance(lambda it: it["subject"].update(digest=digest_of(b""))),
        "its subject is not sha256:",
    ),
    "provenance about nothing": (in_provenance(lambda it: it.pop("subject")), "its subject is not sha256:"),
    "provenance without a layer": (in_provenance(lambda it: it.update(layers=[])), "length >= 1"),
}


@pytest.mark.parametrize("stored", ["object store"], indirect=True)
@pytest.mark.parametrize("case", MALFORMATIONS)
def test_a_malformed_version_is_one_error_that_says_what_and_where(stored: StoredLayout, case: str) -> None:
    change, complaint = MALFORMATIONS[case]
    change(stored)
    with pytest.raises((InvalidLayout, DigestMismatch), match=complaint) as caught:
        stored.registry.load("a", "1.0.0")
    assert "modules/a/1.0.0" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 5000


def test_a_malformed_version_cannot_be_published_over_and_is_as_it_was(stored: StoredLayout) -> None:
    stored.write(INDEX, b"{}")
    with pytest.raises(InvalidLayout, match=r"index\.json: .*remove it"):
        stored.registry.publish("a", "1.0.0", WASM)
    assert stored.read(INDEX) == b"{}"


@pytest.mark.parametrize(
    "change", [lambda path, stored: stored.remove(path), lambda path, stored: stored.write(path, b"")]
)
def test_a_version_that_lacks_its_bytes_is_not_called_published(
    stored: StoredLayout, change: Callable[[str, StoredLayout], None]
) -> None:
    change(blob({"digest": stored.version.digest}), stored)
    with pytest.raises(DigestMismatch, match=r"missing|shorter"):
        stored.registry.publish("a", "1.0.0", WASM, metadata=stored.version.metadata)


@pytest.mark.parametrize("document", [b"[]", b"\xff", NESTED, b"1"])
def test_provenance_that_is_not_an_object_is_an_error_when_it_is_read(stored: StoredLayout, document: bytes) -> None:
    stored.forge_manifest(lambda manifest: manifest["layers"][0].update(stored.stored(document)), place=1)
    assert stored.registry.read("a", "1.0.0") == WASM
    with pytest.raises(InvalidLayout, match=blob({"digest": digest_of(document)})):
        stored.registry.provenance("a", "1.0.0")


def test_what_the_specification_leaves_open_is_read(stored: StoredLayout) -> None:
    stored.change_index(lambda index: index.pop("mediaType"))
    stored.change_index(lambda index: index.update(annotations={"x": "y"}, unknown=[1]))
    stored.change_index(lambda index: index["manifests"].reverse())
    assert stored.registry.load("a", "1.0.0") == (stored.version, WASM)


def test_a_copy_under_another_version_or_name_is_not_served(stored: StoredLayout) -> None:
    folder = stored.folder.removesuffix("/a/1.0.0")
    for place in ("a/1.1.0", "b/1.0.0"):
        stored.filesystem.copy(stored.folder, f"{folder}/{place}", recursive=True)
    with pytest.raises(InvalidLayout, match=r"expected one manifest named 1\.1\.0, found \['1\.0\.0', ''\]"):
        stored.registry.latest("a")
    with pytest.raises(InvalidLayout, match=r"it is the manifest of 'a@1\.0\.0'"):
        stored.registry.get("b", "1.0.0")
    assert stored.registry.get("a", "1.0.0") == stored.version


@pytest.mark.parametrize(
    "place", ["modules/Upper/1.0.0", "modules/a/notes", "modules/a/1", "modules/a/1.0.0+x", "x/y/z"]
)
def test_folders_that_are_not_of_the_registry_are_passed_over(stored: StoredLayout, place: str) -> None:
    root = stored.folder.removesuffix("/modules/a/1.0.0")
    stored.filesystem.makedirs(f"{root}/{place}", exist_ok=True)
    stored.filesystem.pipe_file(f"{root}/{place}/{INDEX}", b"{}")
    stored.filesystem.pipe_file(f"{root}/modules/file", b"")
    stored.filesystem.pipe_file(f"{root}/modules/a/2.0.0", b"a file")
    assert stored.registry.names() == ["a"]
    assert stored.registry.versions("a") == ["1.0.0"]
    assert stored.registry.latest("a") == stored.version


def test_a_folder_of_more_entries_than_can_be_listed_is_named(
    stored: StoredLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    for storage in (local_storage, object_storage):
        monkeypatch.setattr(storage, "MAX_ENTRIES", 3)
    names = stored.folder.removesuffix("/a/1.0.0")
    for number in range(1, 4):
        stored.filesystem.makedirs(f"{names}/a/{number}.0.1", exist_ok=True)
        stored.filesystem.pipe_file(f"{names}/a/{number}.0.1/{INDEX}", b"{}")
    with pytest.raises(
        InvalidLayout, match=r"modules/a in .* holds more than \d+ entries: remove some of them"
    ) as caught:
        stored.registry.latest("a")
    assert caught.value.path == "modules/a"
    assert stored.registry.get("a", "1.0.0") == stored.version


def test_a_version_number_longer_than_a_tag_is_passed_over(stored: StoredLayout) -> None:
    for version in ("9" * 127 + ".0.0", "1.0.0-" + "9" * 200):
        stored.filesystem.makedirs(f"{stored.folder}/../{version}", exist_ok=True)
        stored.filesystem.pipe_file(f"{stored.folder.removesuffix('1.0.0')}{version}/{INDEX}", b"{}")
    assert stored.registry.versions("a") == ["1.0.0"]


def test_a_message_does_not_list_all_that_a_writer_put_there(stored: StoredLayout) -> None:
    for number in range(1, 40):
        stored.filesystem.makedirs(f"{stored.folder.removesuffix('1.0.0')}1.{number}.0", exist_ok=True)
        stored.filesystem.pipe_file(f"{stored.folder.removesuffix('1.0.0')}1.{number}.0/{INDEX}", b"{}")
    with pytest.raises(RegistryError, match=r"there is a@1\.39\.0, .* and 30 more"):
        stored.registry.get("a", "2.0.0")
