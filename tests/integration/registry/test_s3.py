"""Versions, models and decisions on a real S3 server, through s3fs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import fsspec
import pytest
from s3fs import S3FileSystem

from support.eta_model import eta_record
from support.s3_server import S3Server
from wasmline.errors import (
    ArtifactUnavailable,
    Conflict,
    DigestMismatch,
    PrerequisiteMissing,
    RegistryMisconfigured,
    RegistryUnavailable,
    VersionExists,
    VersionNotFound,
)
from wasmline.registry import FilesystemRegistry, digest_of
from wasmline.registry.object_storage import ObjectStorage
from wasmline.registry.storage import open_storage
from wasmline.registry.storage_options import storage_options
from wasmline.registry.storage_probe import probe_storage
from wasmline.training import Decision, ModelRegistry, PromotionLog, promote

WASM = b"\0asm\1\0\0\0"
PUBLISHERS = 5
PROMOTE = Decision(decision="promote", reason="better")

T = TypeVar("T")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with ExitStack() as running:
        try:
            started = running.enter_context(S3Server(folder=tmp_path_factory.mktemp("s3")))
        except (ArtifactUnavailable, PrerequisiteMissing) as error:
            pytest.skip(f"there is no S3 server: {str(error).splitlines()[0]}")
        yield started


@pytest.fixture
def url(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of an empty registry. The credentials are in fsspec's configuration."""
    monkeypatch.setitem(fsspec.config.conf, "s3", server.driver_options)
    return f"s3://{server.bucket()}/registry"


@pytest.fixture
def registry(url: str) -> FilesystemRegistry:
    return FilesystemRegistry(url)


def at_once(call: Callable[[int], T]) -> list[T]:
    """Call ``call`` with the numbers of PUBLISHERS, all at the same moment.

    What they use is opened before: the driver has a client for each thread that opens one.
    """
    barrier = threading.Barrier(PUBLISHERS)

    def enter(number: int) -> T:
        barrier.wait()
        return call(number)

    with ThreadPoolExecutor(PUBLISHERS) as pool:
        return list(pool.map(enter, range(PUBLISHERS)))


def test_a_version_is_read_back_with_its_digest(server: S3Server, url: str, registry: FilesystemRegistry) -> None:
    assert registry.names() == []
    published = registry.publish("distance", "1.0.0", WASM, provenance={"_type": "x"})
    registry.publish("distance", "1.1.0", WASM + b"\0\4\3abc")
    other = FilesystemRegistry(url)
    assert (other.names(), other.versions("distance")) == (["distance"], ["1.0.0", "1.1.0"])
    assert other.load("distance", "1.0.0") == (published, WASM)
    assert published.digest == digest_of(WASM)
    assert other.provenance("distance", "1.0.0") == {"_type": "x"}
    assert other.latest("distance").version == "1.1.0"
    with pytest.raises(VersionNotFound, match=r"there is distance@1\.1\.0, distance@1\.0\.0"):
        other.get("distance", "2.0.0")
    bucket = server.buckets / url.removeprefix("s3://")
    assert (bucket / "modules/distance/1.0.0/index.json").is_file()


def test_publishing_again_changes_nothing_and_other_bytes_are_refused(registry: FilesystemRegistry) -> None:
    first = registry.publish("distance", "1.0.0", WASM)
    assert registry.publish("distance", "1.0.0", WASM) == first
    with pytest.raises(VersionExists, match="publish under a new version"):
        registry.publish("distance", "1.0.0", WASM + b"\0\4\3abc")
    assert registry.read("distance", "1.0.0") == WASM


def test_of_many_that_create_one_folder_at_once_one_succeeds(url: str) -> None:
    """Without a look before it: the server's condition alone decides."""
    storage = open_storage(url)
    assert isinstance(storage, ObjectStorage)
    assert storage.create("promotions/eta/000001", [("promotion.json", b"first")])

    def create(number: int) -> bool:
        return storage.create(folder, [("promotion.json", b"%d" % number)])

    for place in range(2, 8):
        folder = f"promotions/eta/{place:06d}"
        [winner] = [number for number, is_created in enumerate(at_once(create)) if is_created]
        assert storage.read(f"{folder}/promotion.json", 10) == b"%d" % winner


def test_of_many_publishers_of_one_version_one_wins(url: str) -> None:
    contents = [WASM + bytes([0, 2, 1, number]) for number in range(PUBLISHERS)]
    registries = [FilesystemRegistry(url) for _ in contents]
    assert registries[0].names() == []

    def publish(number: int) -> bytes | None:
        try:
            registries[number].publish("distance", version, contents[number])
        except VersionExists:
            return None
        return contents[number]

    for version in ("1.0.0", "1.1.0", "1.2.0"):
        [winner] = filter(None, at_once(publish))
        assert FilesystemRegistry(url).read("distance", version) == winner


@pytest.mark.parametrize("change", ["changed", "cut short", "deleted"])
def test_an_object_that_was_changed_is_not_returned(url: str, registry: FilesystemRegistry, change: str) -> None:
    published = registry.publish("distance", "1.0.0", WASM)
    driver = S3FileSystem()
    blob = f"{url}/modules/distance/1.0.0/blobs/sha256/{published.digest.removeprefix('sha256:')}"
    if change == "deleted":
        driver.rm_file(blob)
    else:
        driver.pipe_file(blob, WASM[::-1] if change == "changed" else WASM[:3])
    with pytest.raises(DigestMismatch, match=f"the blob {published.digest} of modules/distance/1.0.0 in {url} is "):
        registry.read("distance", "1.0.0")


OPERATIONS: dict[str, Callable[[FilesystemRegistry], Any]] = {
    "publish": lambda registry: registry.publish("distance", "1.0.0", WASM),
    "names": lambda registry: registry.names(),
    "versions": lambda registry: registry.versions("distance"),
    "read": lambda registry: registry.read("distance", "1.0.0"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("wrong", ["secret", "key"])
def test_wrong_credentials_are_one_plain_error(
    server: S3Server, url: str, monkeypatch: pytest.MonkeyPatch, wrong: str, operation: str
) -> None:
    monkeypatch.setitem(fsspec.config.conf, "s3", {**server.driver_options, wrong: "a-wrong-value"})
    with pytest.raises(RegistryMisconfigured, match=f"{url} refused: .*: check AWS_ACCESS_KEY_ID") as caught:
        OPERATIONS[operation](FilesystemRegistry(url))
    assert caught.value.__suppress_context__
    assert not any(secret in str(caught.value) for secret in (server.secret_key, "a-wrong-value"))


def test_a_block_of_storage_options_logs_in_to_what_it_opens(
    server: S3Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(fsspec.config.conf, "s3")
    with storage_options({"s3": server.driver_options}):
        registry = FilesystemRegistry(url)
        probe_storage(url)
    assert registry.publish("distance", "1.0.0", WASM).digest == digest_of(WASM)
    assert registry.names() == ["distance"]
    told = f"{url} cannot be written to: the secret key is not that of the access key"
    wrong = {**server.driver_options, "secret": "a-wrong-value"}
    with storage_options({"s3": wrong}), pytest.raises(RegistryUnavailable, match=told):
        probe_storage(url)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.usefixtures("url")
def test_a_missing_bucket_is_one_plain_error(operation: str) -> None:
    """It is not an empty registry."""
    registry = FilesystemRegistry("s3://no-such-bucket/registry")
    with pytest.raises(RegistryMisconfigured, match="no-such-bucket/registry refused: there is no such bucket: create"):
        OPERATIONS[operation](registry)


def test_a_model_is_promoted_on_s3(url: str) -> None:
    record = eta_record()
    models = ModelRegistry(url)
    assert [models.publish(record, content).version for content in (b"{}", b"[]")] == ["1.0.0", "1.1.0"]
    promote(url, "eta", "1.0.0", PROMOTE, champion=None, metrics=record.metrics, run="run-1")
    promote(url, "eta", "1.1.0", PROMOTE, champion="1.0.0", metrics=record.metrics, run="run-2")
    log = PromotionLog(url)
    assert (log.champion("eta"), [each.version for each in log.history("eta")]) == ("1.1.0", ["1.0.0", "1.1.0"])
    assert ModelRegistry(url).load("eta", "1.1.0")[1] == b"[]"


def test_of_many_promotions_at_once_one_is_recorded(url: str) -> None:
    record = eta_record()
    models = ModelRegistry(url)
    versions = [models.publish(record, b"%d" % number).version for number in range(PUBLISHERS)]
    logs = [PromotionLog(url) for _ in versions]

    def decide(number: int) -> bool:
        try:
            logs[number].append(
                "eta", versions[number], PROMOTE, champion=None, metrics=record.metrics, run=f"run-{number}"
            )
        except Conflict:
            return False
        return True

    [winner] = [number for number, recorded in enumerate(at_once(decide)) if recorded]
    assert [each.version for each in logs[0].history("eta")] == [versions[winner]] == [logs[0].champion("eta")]


class CommandLine:
    """The command line, with credentials in its environment alone."""

    def __init__(self, server: S3Server, folder: Path) -> None:
        inherited = {
            each: value for each, value in os.environ.items() if not each.startswith(("AWS_", "WASMLINE_KAFKA"))
        }
        no_files = {name: str(folder / "none") for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")}
        self.environment = inherited | server.environment | no_files | {"AWS_EC2_METADATA_DISABLED": "true"}
        self._folder = folder

    def __call__(self, *arguments: str, status: int = 0, lines: str = "") -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [sys.executable, "-m", "wasmline.cli", *arguments],
            cwd=self._folder,
            env=self.environment,
            input=lines,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ended.returncode == status, ended.stderr
        return ended


@pytest.fixture
def wasmline(server: S3Server, tmp_path: Path) -> CommandLine:
    return CommandLine(server, tmp_path)


def test_the_command_line_takes_credentials_of_its_environment_and_logs_none(
    server: S3Server, url: str, wasmline: CommandLine
) -> None:
    record, token = eta_record(), f"token-{uuid.uuid4()}"
    ModelRegistry(url).publish(record, b"{}")
    PromotionLog(url).append("eta", "1.0.0", PROMOTE, champion=None, metrics=record.metrics)
    wasmline.environment["AWS_SESSION_TOKEN"] = token  # a header of each request; the server ignores it
    ended = wasmline("--debug", "models", "list", "--models", url, "--registry", url, "--json")
    assert [(each["model"], each["champion"]) for each in json.loads(ended.stdout)] == [("eta", "1.0.0")]
    assert "DEBUG" in ended.stderr
    assert not any(secret in ended.stderr for secret in (token, server.secret_key, "Signature="))


@pytest.mark.long
def test_a_project_is_published_and_run_from_s3(url: str, wasmline: CommandLine) -> None:
    wasmline("init", "shout")
    published = wasmline("publish", "shout", "--registry", url).stdout
    assert published.startswith("shout@0.1.0  sha256:")
    assert published.endswith(f"in {url}\n")
    ran = wasmline("run", "shout@0.1.0", "--registry", url, "--output-topic", "loud", lines='{"value":"hey"}\n')
    assert "HEY" in ran.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("changed", "remedy"),
    [
        (
            {"AWS_SECRET_ACCESS_KEY": "a-wrong-value"},
            "the secret key is not that of the access key: check AWS_ACCESS_KEY_ID",
        ),
        ({"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, "there are no credentials: set AWS_ACCESS_KEY_ID"),
    ],
)
def test_the_command_line_says_what_to_do_in_one_line(
    url: str, wasmline: CommandLine, changed: dict[str, str | None], remedy: str
) -> None:
    environment = wasmline.environment | changed
    wasmline.environment = {name: value for name, value in environment.items() if value is not None}
    ended = wasmline("models", "list", "--models", url, "--registry", url, status=1)
    [line] = ended.stderr.splitlines()
    assert line.startswith(f"wasmline: the registry at {url} refused: {remedy}")
