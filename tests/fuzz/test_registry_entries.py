"""Whatever the entries of a registry's folder are, what is read is as it was published, or one error says why not."""

from __future__ import annotations

import os
import random
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.fuzz.stored_registry import PUBLICATIONS, RECORD
from wasmline.documents import encode
from wasmline.errors import DigestMismatch, InvalidLayout, RegistryError, VersionExists
from wasmline.registry import FilesystemRegistry
from wasmline.training import ModelRegistry, PromotionLog, SliceLog

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "125")) // 5
INDEX = "index.json"
SECRET = "not for readers of the registry"
READINGS: dict[str, Callable[[str], Any]] = {
    "module": lambda url: FilesystemRegistry(url).load("a", "1.0.0"),
    "provenance": lambda url: FilesystemRegistry(url).provenance("a", "1.0.0"),
    "model": lambda url: ModelRegistry(url).get("eta", "1.0.0"),
    "model's bytes": lambda url: ModelRegistry(url).read("eta", "1.0.0"),
    "decision": lambda url: PromotionLog(url).history("eta")[:1],
    "slice": lambda url: SliceLog(url).history("eta")[:1],
}
LISTINGS: list[Callable[[str], Any]] = [
    lambda url: FilesystemRegistry(url).names(),
    lambda url: FilesystemRegistry(url).versions("a"),
    lambda url: FilesystemRegistry(url).latest("a"),
    lambda url: ModelRegistry(url).latest("eta"),
    lambda url: PromotionLog(url).champion("eta"),
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "registry"
    for publish in PUBLICATIONS:
        publish(str(root))
    return root


@pytest.fixture(scope="module")
def expected(template: Path) -> dict[str, Any]:
    return {name: look(str(template)) for name, look in READINGS.items()}


def left_by_a_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as unix, tempfile.TemporaryDirectory() as folder:
        unix.bind(f"{folder}/s")
        Path(f"{folder}/s").rename(place)


def large(place: Path) -> None:
    place.touch()
    os.truncate(place, 2**40)


def folder_with(name: str) -> Callable[[Path], object]:
    def make(place: Path) -> None:
        place.mkdir()
        (place / name).touch()

    return make


def copied(source: Path) -> Callable[[Path], object]:
    return lambda place: shutil.copytree(source, place) if source.is_dir() else shutil.copyfile(source, place)


def spoil(root: Path, template: Path, dice: random.Random) -> None:
    """Put something else in the place of an entry, or something where there was nothing."""
    places = sorted(root.rglob("*"))
    place = dice.choice(places)
    if dice.random() < 0.3:
        place = place.parent / dice.choice(["1.1.0", "1.0.0-rc", "000002", INDEX, "9" * 120, "\x1b[2J", "b"])
    secret = root.parent / "outside/secret"
    target = dice.choice([secret, secret.parent, secret.with_name("pipe"), "/dev/zero", dice.choice(places), "x", ".."])
    content = dice.choice([b"", b"{}", b"[]", b"\xff", encode(RECORD)])
    remove(place)
    strange: list[Callable[[Path], object]] = [
        remove,
        large,
        Path.mkdir,
        os.mkfifo,
        left_by_a_socket,
        folder_with(dice.choice(["x", INDEX, "blobs"])),
        copied(dice.choice(sorted(template.rglob("*")))),
        lambda place: place.write_bytes(content),
        lambda place: place.symlink_to(str(target)),
        lambda place: place.hardlink_to(secret),
    ]
    dice.choice(strange)(place)


def remove(place: Path) -> None:
    shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink(missing_ok=True)


def attempt(call: Callable[[str], Any], url: str) -> Any:
    """Return what a call returns, or the error of the registry that it raises."""
    try:
        return call(url)
    except RegistryError as error:
        raised = error
    assert str(raised).isprintable()
    assert len(str(raised)) < 10_000
    assert SECRET not in str(raised)
    return raised


def publish_again(publish: Callable[[str], Any], root: Path) -> Any:
    """Return what is published once each path is removed that an error names."""
    for _ in range(20):
        published = attempt(publish, str(root))
        if not isinstance(published, (InvalidLayout, DigestMismatch)):
            return published
        place = root / str(published.path)
        place = place if os.path.lexists(place) else root.joinpath(*place.relative_to(root).parts[:3])
        assert os.path.lexists(place), published
        remove(place)
    raise AssertionError("the errors do not name what is in the way")


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(dice=st.randoms(use_true_random=True))
def test_a_registry_of_strange_entries_is_as_it_was_published_or_refused(
    template: Path, expected: dict[str, Any], dice: random.Random
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, outside = Path(folder) / "registry", Path(folder) / "outside"
        shutil.copytree(template, root)
        outside.mkdir()
        (outside / "secret").write_text(SECRET)
        os.mkfifo(outside / "pipe")
        for _ in range(dice.choice([1, 1, 2, 4])):
            spoil(root, template, dice)
        for name, look in READINGS.items():
            found = attempt(look, str(root))
            assert found == expected[name] or isinstance(found, RegistryError) or not found
        for listing in LISTINGS:
            attempt(listing, str(root))
        for publish in PUBLICATIONS:
            published = publish_again(publish, root)
            assert isinstance(published, VersionExists) or not isinstance(published, RegistryError), published
        assert (outside / "secret").read_text() == SECRET
        assert sorted(path.name for path in outside.iterdir()) == ["pipe", "secret"]
