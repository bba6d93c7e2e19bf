"""What S3's driver raises: errors of botocore, as s3fs translates them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ProfileNotFound
from fsspec.implementations.memory import MemoryFileSystem
from s3fs.errors import translate_boto_error

from wasmline.errors import RegistryMisconfigured, RegistryUnavailable, VersionExists
from wasmline.registry import FilesystemRegistry
from wasmline.registry.object_storage import ObjectStorage

WASM, OTHER = b"\0asm\1\0\0\0", b"\0asm\1\0\0\0\0\4\3abc"


def refusal(code: str, status: int = 403, **more: str) -> Exception:
    """Return the error of a response of S3."""
    response = {
        "Error": {"Code": code, "Message": "said by S3", **more},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    error: Exception = translate_boto_error(ClientError(response, "PutObject"))
    return error


class Store(MemoryFileSystem):  # type: ignore[misc]
    """A store with a folder of its own, whose writes can be made to fail."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if self.error:
            raise self.error
        super().pipe_file(path, value, mode=mode)


@pytest.fixture
def store() -> Store:
    return Store()


def registry_on(store: MemoryFileSystem, root: str = "") -> FilesystemRegistry:
    root = root or f"/{uuid.uuid4()}"
    registry = FilesystemRegistry(f"memory://{root}")
    registry._store._storage = ObjectStorage(store, root, url="s3://bucket")
    return registry


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (refusal("NoSuchBucket", 404), "there is no such bucket: create it"),
        (refusal("SignatureDoesNotMatch"), "the secret key is not that of the access key: check AWS_ACCESS_KEY_ID"),
        (refusal("InvalidAccessKeyId"), "the access key is unknown: check AWS_ACCESS_KEY_ID"),
        (refusal("403"), "access is denied: check AWS_ACCESS_KEY_ID"),
        (refusal("ExpiredToken", 400), "get new credentials"),
        (refusal("PermanentRedirect", 301), "set AWS_DEFAULT_REGION"),
        (refusal("NotImplemented", 501), "conditional writes"),
        (NoCredentialsError(), "there are no credentials: set AWS_ACCESS_KEY_ID"),
        (ProfileNotFound(profile="x"), "correct AWS_PROFILE"),
    ],
    ids=str,
)
def test_what_no_retry_cures_says_what_to_do(store: Store, error: Exception, remedy: str) -> None:
    store.error = error
    with pytest.raises(
        RegistryMisconfigured, match=f"s3://bucket refused: .*{remedy}.*nothing was published"
    ) as caught:
        registry_on(store).publish("distance", "1.0.0", WASM)
    assert not caught.value.retryable
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("code", "options", "told"),
    [
        ("SignatureDoesNotMatch", {"key"}, "check the keys of the connection that is named as object_store_conn_id"),
        ("SignatureDoesNotMatch", {"client_kwargs"}, "check AWS_ACCESS_KEY_ID and"),
        ("PermanentRedirect", {"key"}, "set region_name of the connection that is named as object_store_conn_id to it"),
        ("NoSuchBucket", {"key"}, "correct the URL or endpoint_url of the connection that is named as"),
    ],
)
def test_the_remedy_is_where_the_login_is(store: Store, code: str, options: set[str], told: str) -> None:
    store.error = refusal(code)
    storage = ObjectStorage(store, f"/{uuid.uuid4()}", url="s3://bucket", options=options)
    with pytest.raises(RegistryMisconfigured, match=told):
        storage.probe()


@pytest.mark.parametrize(
    "error", [refusal("SlowDown", 503), refusal("ConditionalRequestConflict", 409), OSError("said by S3")], ids=str
)
def test_what_may_pass_is_retryable_and_keeps_its_cause(store: Store, error: Exception) -> None:
    store.error = error
    with pytest.raises(RegistryUnavailable, match="said by S3") as caught:
        registry_on(store).publish("distance", "1.0.0", WASM)
    assert caught.value.retryable
    assert caught.value.__cause__ is error


class Taken(Store):
    """A store that refuses to create an object as a server of S3 does, which need not name the condition."""

    refused = refusal("PreconditionFailed", 412)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        try:
            super().pipe_file(path, value, mode=mode)
        except FileExistsError:
            raise self.refused from self.refused.__cause__


class NamesCondition(Taken):
    refused = refusal("PreconditionFailed", 412, Condition="If-None-Match")


@pytest.mark.parametrize("kind", [Taken, NamesCondition])
def test_a_refused_creation_is_a_version_that_exists(kind: type[Store]) -> None:
    root, store = f"/{uuid.uuid4()}", kind()
    storage = ObjectStorage(store, root, url="s3://bucket")
    assert storage.create("modules/a/1.0.0", [("index.json", b"mine")])
    assert not storage.create("modules/a/1.0.0", [("index.json", b"yours")])
    registry = registry_on(store, root)
    registry.publish("b", "1.0.0", WASM)
    with pytest.raises(VersionExists):
        registry.publish("b", "1.0.0", OTHER)


class Conflicts(Store):
    """A store that cannot decide on the condition at first."""

    conflicts = 3

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create" and self.conflicts:
            self.conflicts -= 1
            raise refusal("ConditionalRequestConflict", 409)
        super().pipe_file(path, value, mode=mode)


def test_a_conflict_is_decided_by_another_attempt() -> None:
    storage = ObjectStorage(Conflicts(), f"/{uuid.uuid4()}", url="s3://bucket")
    assert storage.create("modules/a/1.0.0", [("index.json", b"mine")])
    assert not storage.create("modules/a/1.0.0", [("index.json", b"yours")])


class LosesAnswers(Store):
    """A store whose answers are lost, so that its driver repeats each request."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        super().pipe_file(path, value, mode=mode)
        super().pipe_file(path, value, mode=mode)


def test_a_writer_whose_answer_was_lost_is_told_that_it_wrote() -> None:
    storage = ObjectStorage(LosesAnswers(), f"/{uuid.uuid4()}", url="s3://bucket")
    assert storage.create("promotions/eta/000001", [("promotion.json", b"mine")])
    assert not storage.create("promotions/eta/000001", [("promotion.json", b"yours")])


class Overwrites(Store):
    """A store that ignores the condition, as some with S3's interface do."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        super().pipe_file(path, value)


def test_a_store_that_overwrites_is_refused_before_anything_is_published() -> None:
    root, store = f"/{uuid.uuid4()}", Overwrites()
    for _ in range(2):
        with pytest.raises(
            RegistryMisconfigured, match=r"overwrote .* \(\.create_probe\): two publishers could .*; noth"
        ):
            registry_on(store, root).publish("distance", "1.0.0", WASM)
    assert store.find(root) == [f"{root}/.create_probe"]


def test_a_store_is_probed_once_and_then_keeps_the_probe(store: Store) -> None:
    root = f"/{uuid.uuid4()}"
    for version in ("1.0.0", "1.1.0"):
        registry_on(store, root).publish("distance", version, WASM)
    assert registry_on(store, root).versions("distance") == ["1.0.0", "1.1.0"]
    assert registry_on(store, root).names() == ["distance"]
    assert f"{root}/.create_probe" in store.find(root)
