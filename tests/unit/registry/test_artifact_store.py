from pathlib import Path
from typing import Any

import pytest

from wasmline.errors import InvalidArtifact, VersionExists
from wasmline.registry import Layer, OciLayoutStore, oci_manifest

MODEL = "application/x.model+json"
METRICS = "application/x.metrics+json"


def test_any_kind_of_artifact_is_kept_with_several_layers_a_configuration_and_documents(tmp_path: Path) -> None:
    store = OciLayoutStore(str(tmp_path))
    trees = Layer(media_type=MODEL, data=b"trees", annotations={"part": "trees"})
    table = Layer(media_type="text/csv", data=b"a,b")
    put = store.put(
        "models",
        "eta",
        "1.0.0",
        layers=[trees, table],
        config=Layer.json("application/x.config+json", {"seed": 7}),
        annotations={"dataset": "abc"},
        attachments=[Layer.json(METRICS, {"rmse": 7.2})],
    )
    got = store.get("models", "eta", "1.0.0")
    assert got == put
    assert got.config == {"seed": 7}
    assert got.annotations == {"dataset": "abc"}
    assert [layer.annotations for layer in got.layers] == [{"part": "trees"}, {}]
    assert store.read(got) == b"trees"
    assert store.read(got, got.layers[1]) == b"a,b"
    assert [document.media_type for document in got.attachments] == [METRICS]
    assert store.read(got, got.attachments[0]) == b'{"rmse":7.2}'


def test_kinds_do_not_see_each_other(tmp_path: Path) -> None:
    store = OciLayoutStore(str(tmp_path))
    store.put("models", "eta", "1.0.0", layers=[Layer(media_type=MODEL, data=b"1")])
    store.put("modules", "eta", "2.0.0", layers=[Layer(media_type=MODEL, data=b"2")])
    assert store.versions("models", "eta") == ["1.0.0"]
    assert store.latest("modules", "eta") == "2.0.0"
    assert store.names("datasets") == []


def test_only_the_layers_decide_whether_a_version_is_the_same(tmp_path: Path) -> None:
    store = OciLayoutStore(str(tmp_path))
    layers = [Layer(media_type=MODEL, data=b"1"), Layer(media_type="text/csv", data=b"a")]
    first = store.put("models", "eta", "1.0.0", layers=layers, annotations={"at": "monday"})
    assert store.put("models", "eta", "1.0.0", layers=layers, annotations={"at": "tuesday"}) == first
    with pytest.raises(VersionExists):
        store.put("models", "eta", "1.0.0", layers=layers[:1])


def config(data: bytes) -> dict[str, Any]:
    return {"config": Layer(media_type="application/x.config+json", data=data)}


def named(media_type: Any) -> list[Layer]:
    return [Layer(media_type=media_type, data=b"{}")]


UNREADABLE: dict[str, tuple[dict[str, Any], str]] = {
    "no layers": ({"layers": []}, "length >= 1"),
    "a configuration that is not JSON": (config(b"x"), "its configuration: Expecting value"),
    "a configuration that is empty": (config(b""), "its configuration: Expecting value"),
    "a configuration that is a list": (config(b"[]"), "its configuration: Expected `object`, got `array`"),
    "a configuration with a repeated key": (config(b'{"a":1,"a":2}'), "its configuration: the key 'a' is repeated"),
    "a configuration nested": (config(b'{"a":' + b"[" * 10**5), "its configuration: it is nested too deeply"),
    "a configuration too large": (config(b" " * (oci_manifest.MAX_DOCUMENT_BYTES + 1)), "4194305 bytes"),
    "an annotation that is a number": ({"annotations": {"a": 1}}, "Expected `str`, got `int`"),
    "an annotation that is half a letter": ({"annotations": {"a": "\ud800"}}, "surrogates not allowed"),
    "an annotation of bytes for a key": ({"annotations": {b"a": "a"}}, "Only dicts with str keys"),
    "annotations too large": ({"annotations": {"a": "a" * oci_manifest.MAX_DOCUMENT_BYTES}}, "more than 4194304 bytes"),
    "a media type that is a number": ({"layers": named(1)}, "Expected `str`, got `int`"),
    "a media type of an object": ({"layers": named(object())}, "Encoding objects of type object"),
    "a media type too long": ({"attachments": named("x" * 2**22)}, "more than 4194304 bytes"),
    "an attachment too large": (
        {"attachments": [Layer(media_type=METRICS, data=b" " * (oci_manifest.MAX_DOCUMENT_BYTES + 1))]},
        "4194305 bytes: the registry allows 4194304",
    ),
    "too many attachments": ({"attachments": named(METRICS) * oci_manifest.MAX_MANIFESTS}, "length <= 32"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_could_not_be_read_again_is_not_stored(tmp_path: Path, case: str) -> None:
    change, complaint = UNREADABLE[case]
    store = OciLayoutStore(str(tmp_path))
    with pytest.raises(InvalidArtifact, match=rf"eta@1\.0\.0 cannot be published: .*{complaint}"):
        store.put("models", "eta", "1.0.0", **{"layers": named(MODEL), **change})
    assert list(tmp_path.iterdir()) == []
    kept = store.put("models", "eta", "1.0.0", layers=named(MODEL))
    with pytest.raises(InvalidArtifact):
        store.put("models", "eta", "1.0.0", **{"layers": named(MODEL), **change})
    assert store.get("models", "eta", "1.0.0") == kept


def test_folders_that_are_not_versions_are_passed_over(tmp_path: Path) -> None:
    store = OciLayoutStore(str(tmp_path))
    store.put("models", "eta", "1.0.0", layers=[Layer(media_type=MODEL, data=b"1")])
    (tmp_path / "models/eta/notes").mkdir()
    (tmp_path / "models/eta/notes/index.json").write_text("{}")
    assert store.versions("models", "eta") == ["1.0.0"]
