"""Whatever is in a version's files, it is read as it was published, or one error of the registry says why not."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.fuzz.stored_registry import DECLARED, PUBLICATIONS, WASM
from wasmline.cli.runnable import resolve_transform
from wasmline.control import DeploymentSpec
from wasmline.documents import decode, encode
from wasmline.errors import DeployError, RegistryError, UnsupportedSpecVersion
from wasmline.offset_ranges import count_offsets, require_ranges
from wasmline.registry import FilesystemRegistry, Semver, digest_of
from wasmline.training import ModelRecord, ModelRegistry, Promotion, PromotionLog, RecordedSlice, SliceLog

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
INDEX = "index.json"
STRANGE: list[Any] = [
    *(None, True, 0, 1, -1, 2**31, 2**63, 2**70, 0.5, 1e308),
    *(
        "",
        "x",
        "1.0.0",
        "a" * 5000,
        "../../../etc/passwd",
        "/etc/passwd",
        "\0",
        "\x1b[2J",
        "\ud800",
        "\x9b",
        "{}",
        "[]",
        "{",
    ),
    *("sha512:" + "0" * 128, "sha256:" + "0" * 64, "sha256:../x", digest_of(b"{}"), digest_of(WASM)),
    *("application/wasm", "application/vnd.oci.image.manifest.v1+json", "org.opencontainers.image.ref.name"),
    *([], {}, [[]], [{}], {"": None}, [None] * 100, {"a": {"b": {}}}),
]


class Stored:
    """The files below a folder of a registry, which are as they were published after each use."""

    def __init__(self, url: str, folder: str, load: Callable[[str], Any]) -> None:
        for publish in PUBLICATIONS:
            publish(url)
        self.url = url
        self.folder = folder
        self.loaded = load(url)
        self._load = load
        self._files, root = fsspec.core.url_to_fs(url)
        self._folder = f"{root}/{folder}"
        paths = sorted(path.split(f"/{folder}/", 1)[1] for path in self._files.find(self._folder))
        self.published = {path: self.read(path) for path in paths}
        self._added: list[str] = []

    def load(self) -> Any:
        return self._load(self.url)

    def read(self, path: str) -> bytes:
        return bytes(self._files.cat_file(f"{self._folder}/{path}"))

    def write(self, path: str, data: bytes) -> None:
        self._files.pipe_file(f"{self._folder}/{path}", data)
        self._added.append(path)

    def restore(self) -> None:
        for path in self._added:
            if path in self.published:
                self._files.pipe_file(f"{self._folder}/{path}", self.published[path])
            elif self._files.exists(f"{self._folder}/{path}"):
                self._files.rm_file(f"{self._folder}/{path}")
        self._added.clear()

    def forge(self, dice: random.Random) -> None:
        """Change a manifest, a configuration or a declaration, and every digest on the way to it."""
        index = json.loads(self.published[INDEX])
        artifact, *about = index["manifests"]
        descriptor = dice.choice([artifact, artifact, *about])
        manifest = json.loads(self.read(_path(descriptor)))
        match dice.choice(["manifest", "manifest", "annotation", "declaration", "config", "layer"]):
            case "manifest":
                manifest = mutated(manifest, dice)
            case "annotation":
                manifest["annotations"] = mutated(manifest.get("annotations", {}), dice)
            case "declaration":
                annotations = manifest.setdefault("annotations", {})
                annotations["wasmline.transform"] = json.dumps(mutated(DECLARED, dice))
            case "config":
                config = mutated(json.loads(self.read(_path(manifest["config"]))), dice)
                manifest["config"].update(self._stored(json.dumps(config).encode()))
            case "layer":
                manifest["layers"][0].update(self._stored(damaged(self.read(_path(manifest["layers"][0])), dice)))
        descriptor.update(self._stored(json.dumps(manifest).encode()))
        for each in about if descriptor is artifact else ():
            attachment = json.loads(self.read(_path(each)))
            attachment["subject"].update(digest=artifact["digest"], size=artifact["size"])
            each.update(self._stored(json.dumps(attachment).encode()))
        self.write(INDEX, json.dumps(index).encode())

    def _stored(self, data: bytes) -> dict[str, Any]:
        descriptor = {"digest": digest_of(data), "size": len(data)}
        self.write(_path(descriptor), data)
        return descriptor


def _path(descriptor: dict[str, Any]) -> str:
    return "blobs/sha256/" + str(descriptor["digest"]).removeprefix("sha256:")


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Return bytes with some of them changed, dropped, repeated, or all of them gone."""
    wrong = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 8])):
        at = dice.randrange(len(wrong) + 1)
        match dice.choice(["set", "set", "set", "insert", "drop", "repeat", "cut", "nest"]):
            case "set" if at < len(wrong):
                wrong[at] = dice.choice([dice.randrange(256), wrong[at] ^ 1 << dice.randrange(8)])
            case "insert":
                wrong[at:at] = dice.randbytes(dice.randrange(1, 8))
            case "drop":
                del wrong[at : at + dice.randrange(1, 64)]
            case "repeat":
                wrong[at:at] = wrong[dice.randrange(len(wrong) + 1) :][: dice.randrange(1, 200)]
            case "cut":
                del wrong[at:]
            case "nest":
                wrong[at:at] = dice.choice([b"[", b'{"a":']) * dice.choice([1, 1000, 100_000])
    return bytes(wrong)


def mutated(document: Any, dice: random.Random) -> Any:
    """Return a JSON document with some of its values replaced, removed, moved or added."""
    root = {"": _copy(document)}
    for _ in range(dice.choice([1, 1, 1, 2, 4])):
        places = list(_places(root))
        holder, key = dice.choice(places)
        other, name = dice.choice(places)
        value = _copy(dice.choice([dice.choice(STRANGE), other[name]]))
        match dice.choice(["replace", "replace", "replace", "remove", "add"]):
            case "remove" if holder is not root:
                del holder[key]
            case "add" if isinstance(holder, list):
                holder.append(value)
            case "add" if holder is not root:
                holder[str(dice.choice(["x", "urls", "data", "subject", "\x1b[2J", name]))] = value
            case _:
                holder[key] = value
    return root[""]


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    keys = document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in keys:
        yield document, key
        yield from _places(document[key])


def _copy(document: Any) -> Any:
    return json.loads(json.dumps(document))


FOLDERS: dict[str, Callable[[str], Any]] = {
    "modules/a/1.0.0": lambda url: FilesystemRegistry(url).load("a", "1.0.0"),
    "models/eta/1.0.0": lambda url: (ModelRegistry(url).get("eta", "1.0.0"), ModelRegistry(url).read("eta", "1.0.0")),
    "promotions/eta/000001": lambda url: PromotionLog(url).history("eta"),
    "slices/eta/000001": lambda url: SliceLog(url).history("eta"),
}


@pytest.fixture(scope="module", params=["disk", "object store"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("registry")) if request.param == "disk" else "memory://fuzz/registry"


@pytest.fixture(scope="module", params=FOLDERS)
def stored(request: pytest.FixtureRequest, url: str) -> Stored:
    return Stored(url, request.param, FOLDERS[request.param])


modules, models, decisions, slices = (
    pytest.mark.parametrize("stored", [folder], indirect=True, scope="module") for folder in FOLDERS
)
layouts = pytest.mark.parametrize("stored", list(FOLDERS)[:2], indirect=True, scope="module")


def read(stored: Stored, change: Callable[[], None]) -> Any:
    """Change what is stored, and return what is read of it, or None of an error that the registry raises."""
    try:
        change()
        return stored.load()
    except (RegistryError, UnsupportedSpecVersion) as error:
        complaint = str(error)
    finally:
        stored.restore()
    assert complaint.isprintable()
    assert stored.folder in complaint
    assert len(complaint) < 10_000
    return None


FUZZED = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
DICE = st.randoms(use_true_random=True)


@layouts
@FUZZED
@given(dice=DICE)
def test_a_version_with_damaged_files_is_as_it_was_published_or_refused(stored: Stored, dice: random.Random) -> None:
    def change() -> None:
        for path in dice.sample(sorted(stored.published), dice.choice([1, 1, 2])):
            stored.write(path, damaged(stored.published[path], dice))

    assert read(stored, change) in (None, stored.loaded)


@layouts
@FUZZED
@given(dice=DICE)
def test_a_version_with_another_index_is_as_it_was_published_or_refused(stored: Stored, dice: random.Random) -> None:
    def change() -> None:
        stored.write(INDEX, json.dumps(mutated(json.loads(stored.published[INDEX]), dice)).encode())

    assert read(stored, change) in (None, stored.loaded)


@modules
@FUZZED
@given(dice=DICE)
def test_a_forged_version_is_refused_or_one_that_can_be_used(stored: Stored, dice: random.Random) -> None:
    """Nothing but a signature would tell it from a published one; its bytes have its digest, and it can be deployed."""
    found = read(stored, lambda: stored.forge(dice))
    if found is None:
        return
    version, wasm = found
    assert (version.name, version.version, version.digest) == ("a", "1.0.0", digest_of(wasm))
    missing = [key for key in ("input-topic", "output-topics") if key not in version.metadata.transform]
    with pytest.raises(DeployError, match="declares no") if missing else nullcontext():
        assert DeploymentSpec.of(version).digest == digest_of(wasm)


@modules
@FUZZED
@given(dice=DICE)
def test_a_forged_version_is_found_or_refused_by_the_command_line(stored: Stored, dice: random.Random) -> None:
    try:
        stored.forge(dice)
        FilesystemRegistry(stored.url).provenance("a", "1.0.0")
        name = resolve_transform("a@1.0.0", stored.url).context.name
    except (RegistryError, DeployError):
        name = "a"
    finally:
        stored.restore()
    assert name == "a"


@models
@FUZZED
@given(dice=DICE)
def test_a_forged_model_is_refused_or_one_that_can_be_compared(stored: Stored, dice: random.Random) -> None:
    found = read(stored, lambda: stored.forge(dice))
    if found is None:
        return
    version, model = found
    assert (version.name, version.version, version.digest) == ("eta", "1.0.0", digest_of(model))
    assert version.record.layout.columns == version.record.columns
    assert decode(ModelRecord, encode(version.record)) == version.record


@decisions
@FUZZED
@given(dice=DICE)
def test_a_forged_decision_is_refused_or_one_on_versions(stored: Stored, dice: random.Random) -> None:
    def change() -> None:
        ((path, document),) = stored.published.items()
        forged = json.dumps(mutated(json.loads(document), dice)).encode()
        stored.write(path, dice.choice([forged, damaged(document, dice)]))

    for decision in read(stored, change) or []:
        assert (decision.model, decision.number) == ("eta", 1)
        assert Semver.parse(decision.live or "1.0.0")
        assert decode(Promotion, encode(decision)) == decision


@slices
@FUZZED
@given(dice=DICE)
def test_a_forged_slice_is_refused_or_one_of_ranges(stored: Stored, dice: random.Random) -> None:
    def change() -> None:
        ((path, document),) = stored.published.items()
        forged = json.dumps(mutated(json.loads(document), dice)).encode()
        stored.write(path, dice.choice([forged, damaged(document, dice)]))

    for each in read(stored, change) or []:
        assert (each.model, each.number) == ("eta", 1)
        require_ranges(each.offsets)
        assert count_offsets(each.offsets) > 0
        assert decode(RecordedSlice, encode(each)) == each


def test_what_is_stored_is_restored_between_examples(stored: Stored) -> None:
    assert stored.load() == stored.loaded
