from pathlib import Path

import pytest

from wasmline.errors import VersionExists
from wasmline.registry import Layer, OciLayoutStore

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


def test_folders_that_are_not_versions_are_passed_over(tmp_path: Path) -> None:
    store = OciLayoutStore(str(tmp_path))
    store.put("models", "eta", "1.0.0", layers=[Layer(media_type=MODEL, data=b"1")])
    (tmp_path / "models/eta/notes").mkdir()
    (tmp_path / "models/eta/notes/index.json").write_text("{}")
    assert store.versions("models", "eta") == ["1.0.0"]
