import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wasmline.documents import plain
from wasmline.errors import (
    DigestMismatch,
    InvalidArtifact,
    InvalidLayout,
    RegistryUnavailable,
    UnsupportedSpecVersion,
    VersionNotFound,
)
from wasmline.registry import Layer, OciLayoutStore, digest_of
from wasmline.training import Dataset, FeatureLayout, ModelRecord, ModelRegistry


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


@pytest.mark.parametrize("change", [{"columns": ("km",)}, {"libraries": {"xgboost": "4"}}, {"training_rows": 81}])
def test_the_same_bytes_with_another_record_are_another_version(
    models: ModelRegistry, record: ModelRecord, change: dict[str, Any]
) -> None:
    layout = FeatureLayout(features=("km",)) if "columns" in change else record.layout
    first, other = record, replace(record, **change, layout=layout)
    assert models.publish(first, b"{}").version == "1.0.0"
    assert models.publish(other, b"{}").record == other
    assert models.publish(other, b"{}").version == "1.1.0"
    assert models.publish(first, b"{}").version == "1.2.0"


def test_a_record_that_could_not_be_read_again_is_not_published(models: ModelRegistry, record: ModelRecord) -> None:
    for change in ({"metrics": replace(record.metrics, r2=float("nan"))}, {"run": "\ud800"}, {"libraries": {"x": 1}}):
        with pytest.raises(InvalidArtifact, match="the model eta cannot be published: "):
            models.publish(replace(record, **change), b"{}")
    assert models.names() == []


def test_a_version_that_none_can_follow_is_named(models: ModelRegistry, record: ModelRecord) -> None:
    for last in (f"1.{'9' * 124}.0", f"{'9' * 124}.9.0"):
        store(models, "eta", last, plain(record))
        with pytest.raises(
            InvalidLayout, match=rf"models/eta/{last} in .*: no version can follow it: remove it"
        ) as caught:
            models.publish(record, b"[]")
        shutil.rmtree(Path(models.url) / caught.value.path)
    assert models.publish(record, b"[]").version == "1.0.0"


def test_a_version_that_is_taken_and_not_listed_ends_the_numbering(
    models: ModelRegistry, record: ModelRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a store whose listing lags behind."""
    models.publish(record, b"{}")
    monkeypatch.setattr(OciLayoutStore, "versions", lambda *_: [])
    with pytest.raises(RegistryUnavailable, match=r"has eta@1\.0\.0 but does not list it: retry"):
        models.publish(record, b"[]")


def store(models: ModelRegistry, name: str, version: str, document: dict[str, Any], **types: str) -> None:
    """Put a version there as another program might."""
    OciLayoutStore(models.url).put(
        "models",
        name,
        version,
        layers=[Layer(media_type=types.get("layer", "application/json"), data=b"{}")],
        config=Layer.json(types.get("config", "application/vnd.wasmline.model.config.v1+json"), document),
    )


def test_a_record_of_another_release_is_refused(models: ModelRegistry) -> None:
    store(models, "eta", "1.0.0", {"spec_version": 9})
    with pytest.raises(UnsupportedSpecVersion, match=r"models/eta/1\.0\.0 in .* is a ModelRecord of spec version 9"):
        models.get("eta", "1.0.0")


HUGE = FeatureLayout(features=("km",) * 10**5, categories={"km": ("a",) * 10**5})

OTHER = FeatureLayout(features=("speed",))
TEXT = FeatureLayout(features=("kind",))

FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "another model": ({"model": "other"}, "it is the record of the model 'other'"),
    "a name that is a number": ({"model": 1}, r"Expected `str`, got `int` - at `\$\.model`"),
    "no dataset": ({"dataset": None}, r"Expected `object`, got `null` - at `\$\.dataset`"),
    "offsets that are text": ({"dataset": {"offsets": "x"}}, r".*\$\.dataset"),
    "rows that are a fraction": ({"training_rows": 0.5}, r".*\$\.training_rows"),
    "metrics that are a list": ({"metrics": []}, r".*\$\.metrics"),
    "a spec version that is text": ({"spec_version": "1"}, r".*\$\.spec_version"),
    "a spec version that is huge": (
        {"spec_version": 10**4000},
        r"Invalid enum value 10+ \.\.\. 0+ - at `\$\.spec_version`; restore",
    ),
    "a spec version that is a list": ({"spec_version": []}, r".*\$\.spec_version"),
    "a time that is none": ({"created": "yesterday"}, "Invalid isoformat string: 'yesterday'"),
    "a time without an offset": ({"created": "2026-01-01T00:00"}, "it was created at .*, without a UTC offset"),
    "columns of another layout": ({"columns": ["km"]}, "its columns are not those of its layout"),
    "a feature without a field": ({"layout": plain(OTHER), "columns": ["speed"]}, "its dataset has no field 'speed'"),
    "a text without categories": ({"layout": plain(TEXT), "columns": ["kind"]}, "its texts are not the features with "),
    "columns in another order": ({"columns": ["kind=a", "km", "kind=b"]}, "its columns are not those"),
    "columns without end": ({"layout": plain(HUGE)}, "its columns are not those of its layout"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_record_is_one_error_that_says_what_and_where(
    models: ModelRegistry, record: ModelRecord, case: str
) -> None:
    change, complaint = FORGED[case]
    store(models, "eta", "1.0.0", plain(record) | change)
    with pytest.raises(InvalidLayout, match=rf"models/eta/1\.0\.0 in .*: {complaint}"):
        models.get("eta", "1.0.0")


@pytest.mark.parametrize("types", [{"layer": "text/html"}, {"config": "application/vnd.wasm.config.v0+json"}])
def test_what_is_not_a_model_is_refused(models: ModelRegistry, record: ModelRecord, types: dict[str, str]) -> None:
    store(models, "eta", "1.0.0", plain(record), **types)
    with pytest.raises(InvalidLayout, match=r"expected the media types .*model\.config.* and application/json, found"):
        models.get("eta", "1.0.0")
    with pytest.raises(InvalidLayout, match="expected the media types"):
        models.read("eta", "1.0.0")
