"""The commands on a registry whose writer is hostile: one line on stderr, and nothing of it reaches the terminal."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wasmline.cli import main
from wasmline.registry import ArtifactMetadata, FilesystemRegistry, digest_of

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m"
DECLARED = {"input-topic": "in", "output-topics": ["out"], "env": {"A": "1"}}


class Hostile:
    """``echo@1.0.0`` in a registry whose files a test changes."""

    def __init__(self, root: Path, wasm: bytes) -> None:
        self.root = root
        self.folder = root / "modules/echo/1.0.0"
        metadata = ArtifactMetadata(description="Echoes.", transform=DECLARED)
        FilesystemRegistry(str(root)).publish("echo", "1.0.0", wasm, metadata=metadata)

    def change_index(self, change: Callable[[Any], object]) -> None:
        index = json.loads((self.folder / "index.json").read_bytes())
        change(index)
        (self.folder / "index.json").write_text(json.dumps(index))

    def annotate(self, key: str, text: str) -> None:
        """Forge a manifest with another annotation."""
        (descriptor,) = json.loads((self.folder / "index.json").read_bytes())["manifests"]
        manifest = json.loads((self.folder / "blobs/sha256" / descriptor["digest"][7:]).read_bytes())
        manifest["annotations"][key] = text
        data = json.dumps(manifest).encode()
        (self.folder / "blobs/sha256" / digest_of(data)[7:]).write_bytes(data)
        self.change_index(lambda index: index["manifests"][0].update(digest=digest_of(data), size=len(data)))


@pytest.fixture
def hostile(tmp_path: Path, wasm: bytes) -> Hostile:
    return Hostile(tmp_path / "registry", wasm)


def invoke(hostile: Hostile, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(
        main, [command, "echo", "--registry", str(hostile.root), *arguments], input='{"value":"x"}\n'
    )


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


OCI = "org.opencontainers.image."

ATTACKS: dict[str, Callable[[Hostile], object]] = {
    "digest that is a path": lambda hostile: hostile.change_index(
        lambda index: index["manifests"][0].update(digest="sha256:../../../../../../secret")
    ),
    "version with escapes": lambda hostile: hostile.annotate(f"{OCI}version", ESCAPES),
    "title with escapes": lambda hostile: hostile.annotate(f"{OCI}title", ESCAPES),
    "description with escapes": lambda hostile: hostile.annotate(f"{OCI}description", ESCAPES),
    "key with escapes": lambda hostile: hostile.annotate(ESCAPES, "x"),
    "topic with escapes": lambda hostile: hostile.annotate(
        "wasmline.transform", json.dumps({"input-topic": ESCAPES, "output-topics": [ESCAPES]})
    ),
    "variable with escapes": lambda hostile: hostile.annotate(
        "wasmline.transform", json.dumps({**DECLARED, "env": {ESCAPES: ESCAPES}})
    ),
    "repeated key with escapes": lambda hostile: (hostile.folder / "index.json").write_text(
        json.dumps({"a": 1})[:-1] + f', "{json.dumps(ESCAPES)[1:-1]}": 1, "{json.dumps(ESCAPES)[1:-1]}": 2}}'
    ),
    "reference name with escapes": lambda hostile: hostile.change_index(
        lambda index: index["manifests"][0].update(annotations={f"{OCI}ref.name": ESCAPES})
    ),
    "media type with escapes": lambda hostile: hostile.change_index(
        lambda index: index["manifests"][0].update(mediaType=ESCAPES)
    ),
    "folder with escapes": lambda hostile: hostile.folder.rename(hostile.folder.with_name(ESCAPES)),
    "index that is a pipe": lambda hostile: pipe(hostile.folder / "index.json"),
    "declaration of a list": lambda hostile: hostile.annotate("wasmline.transform", "[]"),
    "declaration that cannot be deployed": lambda hostile: hostile.annotate(
        "wasmline.transform", json.dumps({"input-topic": "a", "output-topics": ["a"]})
    ),
    "reserved variable": lambda hostile: hostile.annotate(
        "wasmline.transform", json.dumps({**DECLARED, "env": {"REDPANDA_X": "1"}})
    ),
    "too little memory to be a limit": lambda hostile: hostile.annotate(
        "wasmline.transform", json.dumps({**DECLARED, "memory-bytes": 1})
    ),
}


@pytest.mark.parametrize("command", ["run", "inspect", "deploy"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_malformed_version_is_one_line_without_escape_sequences(hostile: Hostile, command: str, attack: str) -> None:
    ATTACKS[attack](hostile)
    (hostile.root.parent / "secret").write_text("of another user")
    result = invoke(hostile, command)
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("wasmline: ")
    assert result.stderr.removesuffix("\n").isprintable()
    assert digest_of(b"of another user") not in result.stderr


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_annotations_that_are_not_read_are_not_shown(hostile: Hostile, command: str) -> None:
    hostile.annotate("wasmline.transform", json.dumps({**DECLARED, "unknown": ESCAPES}))
    result = invoke(hostile, command)
    assert result.exit_code == 0
    assert "owned" not in result.output


def test_what_an_error_quotes_does_not_command_the_terminal(tmp_path: Path) -> None:
    """As the name of a file in a folder that was downloaded, or a compiler's output about it."""
    folder = tmp_path / ESCAPES
    folder.mkdir()
    result = CliRunner().invoke(main, ["build", str(folder)])
    assert result.exit_code == 1
    assert r"\u001b]0;owned\u0007\u001b[2J\u009b31m" in result.stderr
    assert result.stderr.removesuffix("\n").isprintable()
