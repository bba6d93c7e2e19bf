"""What a reader of models shows, and how often it reads the storage."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from wasmline.control import Deployment, DeploymentSpec
from wasmline.documents import plain
from wasmline.errors import InvalidLayout
from wasmline.registry import ArtifactMetadata, FilesystemRegistry, local_storage
from wasmline.training import (
    Decision,
    Metrics,
    ModelReader,
    ModelRecord,
    ModelRegistry,
    PromotionLog,
    model_reader,
    model_reference,
)
from wasmline.training.document_cache import DocumentCache

PROMOTE = Decision(decision="promote", reason="better")


class Registries:
    """A registry of models and one of their modules, whose reads are counted."""

    def __init__(self, folder: Path, record: ModelRecord, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.models = ModelRegistry(str(folder / "models"))
        self.log = PromotionLog(self.models.url)
        self.modules = FilesystemRegistry(str(folder / "modules"))
        self._record = record
        self._read: list[str] = []
        read = local_storage.LocalStorage.read

        def counted(storage: local_storage.LocalStorage, path: str, limit: int) -> bytes | None:
            self._read.append(path)
            return read(storage, path, limit)

        monkeypatch.setattr(local_storage.LocalStorage, "read", counted)

    def reader(self) -> ModelReader:
        return ModelReader(self.models.url, self.modules.url)

    def read_paths(self) -> list[str]:
        """Return the documents that were read since the last call."""
        found, self._read[:] = [*self._read], []
        return found

    def publish(self, name: str, model: bytes, **metrics: Any) -> str:
        record = replace(self._record, model=name, metrics=replace(self._record.metrics, **metrics))
        return self.models.publish(record, model).version

    def promote(self, name: str, version: str) -> None:
        metrics = self.models.get(name, version).record.metrics
        self.log.append(name, version, PROMOTE, champion=self.log.champion(name), metrics=metrics)

    def deployed(self, name: str, version: str) -> Deployment:
        """Publish a module of a version, and return its deployment."""
        reference = model_reference(self.models.get(name, version))
        metadata = ArtifactMetadata(transform={"model": plain(reference)})
        module = self.modules.publish(name, version, f"{name} {version}".encode(), metadata=metadata)
        spec = DeploymentSpec(
            name=name,
            version=version,
            digest=module.digest,
            input_topic="features",
            output_topics=(name,),
            dead_letter_topic=None,
            model=reference,
        )
        return Deployment(spec=spec, generation=1, state="running", updated_ms=1)


@pytest.fixture
def registries(tmp_path: Path, record: ModelRecord, monkeypatch: pytest.MonkeyPatch) -> Registries:
    return Registries(tmp_path, record, monkeypatch)


def test_each_model_is_read_with_its_champion_and_what_serves(registries: Registries) -> None:
    for name in ("eta", "price", "wait"):
        registries.publish(name, b"1", rmse=5.0)
        registries.publish(name, b"2", rmse=4.0)
    registries.promote("eta", "1.0.0")
    registries.promote("price", "1.1.0")
    deployments = [registries.deployed("eta", "1.0.0"), registries.deployed("price", "1.0.0")]
    reader = registries.reader()
    assert [(each.model, each.champion, each.versions, each.rmse) for each in reader.read()] == [
        ("eta", "1.0.0", ("1.0.0", "1.1.0"), 5.0),
        ("price", "1.1.0", ("1.0.0", "1.1.0"), 4.0),
        ("wait", None, ("1.0.0", "1.1.0"), 4.0),
    ]
    assert [each.serving for each in reader.read()] == [None, None, None]
    served = [each.serving for each in reader.read(deployments)]
    assert [each.state for each in served if each] == ["serving", "not published", "no champion"]
    assert not any(each.problem for each in reader.read(deployments))


def test_versions_have_their_errors_beside_those_of_the_baselines(registries: Registries) -> None:
    registries.publish("eta", b"1", rmse=5.0, mean_rmse=9.0)
    registries.publish("eta", b"2", rmse=4.0, mean_rmse=9.0, linear_rmse=6.0, forward_rmse=4.5)
    first, second = registries.reader().versions("eta")
    assert (first.version, first.rmse, first.baseline_rmse, first.forward_rmse) == ("1.0.0", 5.0, 9.0, None)
    assert (second.version, second.rmse, second.baseline_rmse, second.forward_rmse) == ("1.1.0", 4.0, 6.0, 4.5)
    assert (first.created_ms, first.rows, first.run) == (1_767_225_600_000, 80, "run-1")
    assert first.digest == registries.models.get("eta", "1.0.0").digest
    assert registries.reader().versions("unknown") == []


def test_decisions_are_those_of_the_log_with_bounded_texts(registries: Registries, metrics: Metrics) -> None:
    for model in (b"1", b"2"):
        registries.publish("eta", model)
    registries.promote("eta", "1.0.0")
    keep = Decision(decision="keep", reason="worse" * 1_000, refusal="noise")
    worse = replace(metrics, rmse=9.0)
    registries.log.append("eta", "1.1.0", keep, champion="1.0.0", metrics=worse, champion_metrics=metrics, run="r2")
    first, second = registries.reader().decisions("eta")
    assert (first.number, first.decision, first.live, first.champion_rmse) == (1, "promote", "1.0.0", None)
    assert (second.number, second.decision, second.live, second.champion) == (2, "keep", "1.0.0", "1.0.0")
    assert (second.rmse, second.champion_rmse, second.refusal, second.run) == (9.0, metrics.rmse, "noise", "r2")
    assert len(second.reason) < 1_100


def test_a_second_reading_of_an_unchanged_registry_reads_no_document(registries: Registries) -> None:
    names, deployments = ["eta", "price"], []
    for name in names:
        for number in range(3):
            registries.promote(name, registries.publish(name, b"%d" % number))
        deployments.append(registries.deployed(name, "1.2.0"))
    reader = registries.reader()

    def look() -> list[object]:
        lists = [(reader.versions(name), reader.decisions(name)) for name in names]
        return [*reader.read(deployments), *reader.read(), *lists]

    registries.read_paths()
    first = look()
    read = registries.read_paths()
    assert read
    assert len(read) == len(set(read)), "a document was read twice"
    assert look() == first
    assert registries.read_paths() == []
    registries.promote("eta", registries.publish("eta", b"3"))
    registries.read_paths()
    assert look() != first
    assert {"/".join(path.split("/")[:3]) for path in registries.read_paths()} == {
        "models/eta/1.3.0",
        "promotions/eta/000004",
    }


@pytest.mark.parametrize("method", ["versions", "decisions"])
def test_one_model_that_is_removed_and_filled_anew_is_read_anew(registries: Registries, method: str) -> None:
    registries.promote("eta", registries.publish("eta", b"1", rmse=5.0))
    read = getattr(registries.reader(), method)
    assert [each.rmse for each in read("eta")] == [5.0]
    shutil.rmtree(registries.folder / "models")
    assert read("eta") == []
    registries.promote("eta", registries.publish("eta", b"2", rmse=3.0))
    assert [each.rmse for each in read("eta")] == [3.0]


def test_in_an_object_store_a_second_reading_is_a_listing_for_each_model_log_and_transform(
    record: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"memory://{uuid.uuid4()}"
    models, log = ModelRegistry(f"{url}/models"), PromotionLog(f"{url}/models")
    for name in ("eta", "price"):
        for number in range(3):
            models.publish(replace(record, model=name), b"%d" % number)
            champion = log.champion(name)
            log.append(name, f"1.{number}.0", PROMOTE, champion=champion, metrics=record.metrics)
    reader = ModelReader(models.url, f"{url}/modules")
    first = reader.read(())
    assert [each.champion for each in first] == ["1.2.0", "1.2.0"]
    assert [len(reader.versions(each.model)) for each in first] == [3, 3]
    requests: list[str] = []
    for method in ("ls", "info", "cat_file", "exists"):
        call = getattr(MemoryFileSystem, method)

        def counted(self: Any, path: str, *arguments: Any, _call: Any = call, **options: Any) -> Any:
            requests.append(path.partition("/models/")[2] or path.rpartition("/")[2])
            return _call(self, path, *arguments, **options)

        monkeypatch.setattr(MemoryFileSystem, method, counted)
    assert reader.read(()) == first
    assert sorted(requests) == sorted(
        ["models", "models/eta", "models/price", "promotions/eta", "promotions/price", "eta", "price"]
    )


def test_a_module_is_found_once_it_is_published(registries: Registries) -> None:
    registries.promote("eta", registries.publish("eta", b"1"))
    reader = registries.reader()
    assert reader.serving("eta", ()).state == "not published"
    assert reader.serving("eta", [registries.deployed("eta", "1.0.0")]).state == "serving"


def test_a_rollback_is_seen_in_the_remedy(registries: Registries) -> None:
    for model in (b"1", b"2"):
        registries.promote("eta", registries.publish("eta", model))
    deployments = [registries.deployed("eta", "1.1.0")]
    registries.deployed("eta", "1.0.0")
    reader = registries.reader()
    assert reader.serving("eta", deployments).state == "serving"
    registries.log.roll_back("eta", "1.0.0", champion="1.1.0", reason="late orders")
    assert "run wasmline models rollback eta --to 1.0.0" in reader.serving("eta", deployments).explanation


def test_a_registry_that_is_removed_and_filled_anew_is_read_anew(registries: Registries) -> None:
    registries.promote("eta", registries.publish("eta", b"1", rmse=5.0))
    deployments = [registries.deployed("eta", "1.0.0")]
    reader = registries.reader()
    assert reader.read(deployments)[0].rmse == 5.0
    shutil.rmtree(registries.folder / "models")
    assert reader.read(deployments) == []
    registries.promote("eta", registries.publish("eta", b"2", rmse=3.0))
    [model] = reader.read(deployments)
    assert (model.rmse, model.serving and model.serving.state) == (3.0, "not published")


def test_one_that_cannot_be_read_hides_no_other_and_is_read_once_it_is_restored(registries: Registries) -> None:
    for name in ("eta", "price"):
        registries.promote(name, registries.publish(name, b"1"))
    index = registries.folder / "models/models/eta/1.0.0/index.json"
    document = index.read_bytes()
    index.write_bytes(b"{}")
    reader = registries.reader()
    for _ in range(2):
        eta, price = reader.read(())
        assert eta.problem.startswith("models/eta/1.0.0")
        assert (eta.champion, eta.versions, eta.rmse, eta.serving) == ("1.0.0", ("1.0.0",), None, None)
        assert (price.problem, price.champion, price.rmse) == ("", "1.0.0", 7.2)
    with pytest.raises(InvalidLayout, match=r"models/eta/1\.0\.0"):
        reader.versions("eta")
    index.write_bytes(document)
    assert [(each.problem, each.rmse) for each in reader.read(())] == [("", 7.2), ("", 7.2)]


def test_the_newest_versions_and_decisions_are_listed(registries: Registries, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        registries.promote("eta", registries.publish("eta", b"%d" % number))
    monkeypatch.setattr(model_reader, "MAX_LISTED", 2)
    reader = registries.reader()
    assert [each.version for each in reader.versions("eta")] == ["1.1.0", "1.2.0"]
    assert [each.number for each in reader.decisions("eta")] == [2, 3]


def test_a_cache_holds_no_more_documents_than_it_may_and_evicts_the_name_used_longest_ago() -> None:
    read: list[tuple[str, int]] = []

    def document(name: str, key: int) -> str:
        read.append((name, key))
        return f"{name} {key}"

    cache = DocumentCache(document, max_documents=4)
    for name, key in (("a", 1), ("a", 2), ("b", 1), ("c", 1), ("a", 1), ("d", 1)):
        assert cache.get(name, key) == f"{name} {key}"
    assert read == [("a", 1), ("a", 2), ("b", 1), ("c", 1), ("d", 1)]
    read.clear()
    for name, key in (("a", 1), ("a", 2), ("c", 1), ("d", 1), ("b", 1)):
        cache.get(name, key)
    assert read == [("b", 1)]
    read.clear()
    for key in range(20):
        cache.get("e", key)
    cache.get("e", 19)
    cache.get("e", 16)
    assert len(read) == 20
    cache.get("e", 15)
    assert len(read) == 21


def test_a_cache_forgets_what_is_not_listed_any_more() -> None:
    read: list[int] = []
    cache: DocumentCache[int, None] = DocumentCache(lambda _, key: read.append(key), max_documents=4)
    for _ in range(2):
        for key in (1, 2, 3):
            cache.get("a", key)
        cache.retain("a", lambda key: key != 2)
        cache.retain("unknown", lambda _: False)
        cache.retain_names(lambda name: name == "a")
    assert read == [1, 2, 3, 2]
    cache.retain_names(lambda _: False)
    for key in (1, 1, 4, 5, 6, 4, 5, 6, 1):
        cache.get("b", key)
    assert read == [1, 2, 3, 2, 1, 4, 5, 6]
