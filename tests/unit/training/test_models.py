from dataclasses import replace
from pathlib import Path

import pytest

from wasmline.documents import plain
from wasmline.errors import DigestMismatch, InvalidLayout, UnsupportedSpecVersion, VersionNotFound
from wasmline.registry import Layer, OciLayoutStore, digest_of
from wasmline.training import Dataset, ModelRecord, ModelRegistry


@pytest.fixture
def models(tmp_path: Path) -> ModelRegistry:
    return ModelRegistry(str(tmp_path / "models"))


def over(record: ModelRecord, dataset: Dataset) -> ModelRecord:
    return replace(record, dataset=dataset, dataset_digest=dataset.digest)


def test_a_model_comes_back_with_all_that_is_known_of_it(models: ModelRegistry, record: ModelRecord) -> None:
    stored = models.publish(record, b"{}")
    assert (stored.name, stored.version, stored.digest, stored.size) == ("eta", "1.0.0", digest_of(b"{}"), 2)
    assert models.get("eta", "1.0.0") == stored == models.latest("eta")
    assert stored.record == record
    assert models.read("eta", "1.0.0") == b"{}"
    assert models.names() == ["eta"]


def test_each_new_model_is_the_next_minor_version(models: ModelRegistry, record: ModelRecord) -> None:
    assert [models.publish(record, b"%d" % number).version for number in range(11)][-2:] == ["1.9.0", "1.10.0"]
    assert models.versions("eta")[-1] == "1.10.0"


def test_a_run_repeated_on_the_same_dataset_adds_no_version(models: ModelRegistry, record: ModelRecord) -> None:
    first = models.publish(record, b"{}")
    assert models.publish(replace(record, run="run-2", created="later"), b"{}") == first
    assert models.versions("eta") == ["1.0.0"]


def test_the_same_model_from_another_dataset_is_another_version(
    models: ModelRegistry, record: ModelRecord, dataset: Dataset
) -> None:
    models.publish(record, b"{}")
    other = over(record, replace(dataset, offsets={"0": (0, 11)}))
    assert models.publish(other, b"{}").version == "1.1.0"
    assert models.get("eta", "1.1.0").record.dataset.offsets == {"0": (0, 11)}


def test_a_model_that_was_never_trained_has_no_version(models: ModelRegistry) -> None:
    assert models.latest("eta") is None
    assert models.versions("eta") == []
    with pytest.raises(VersionNotFound):
        models.get("eta", "1.0.0")


def test_changed_bytes_are_not_returned(models: ModelRegistry, record: ModelRecord) -> None:
    stored = models.publish(record, b"{}")
    blob = next(Path(models.url).glob(f"models/eta/1.0.0/blobs/*/{stored.digest.removeprefix('sha256:')}"))
    blob.write_bytes(b"[]")
    with pytest.raises(DigestMismatch):
        models.read("eta", "1.0.0")


def test_a_record_of_another_release_is_refused(models: ModelRegistry) -> None:
    layer = Layer(media_type="application/json", data=b"{}")
    config = Layer.json("application/json", {"spec_version": 9})
    OciLayoutStore(models.url).put("models", "eta", "1.0.0", layers=[layer], config=config)
    with pytest.raises(UnsupportedSpecVersion):
        models.get("eta", "1.0.0")


@pytest.mark.parametrize(("name", "layers"), [("other", [b"{}"]), ("eta", [b"{}", b"[]"])])
def test_what_is_stored_as_another_model_than_it_is_is_refused(
    models: ModelRegistry, record: ModelRecord, name: str, layers: list[bytes]
) -> None:
    """As by a copy of another model's folder, or by another program."""
    stored = [Layer(media_type="application/json", data=data) for data in layers]
    OciLayoutStore(models.url).put("models", name, "1.0.0", layers=stored, config=Layer.json("x/json", plain(record)))
    with pytest.raises(InvalidLayout, match=f"it is not one layer of the model {name}"):
        models.get(name, "1.0.0")
