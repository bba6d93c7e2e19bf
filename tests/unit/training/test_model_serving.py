"""Whether a model's champion is what the deployments run: each disagreement is named, with what to do."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wasmline.control import Deployment, DeploymentSpec
from wasmline.documents import plain
from wasmline.errors import InvalidLayout, VersionNotFound
from wasmline.model_reference import ModelReference
from wasmline.registry import ArtifactMetadata, FilesystemRegistry, Version
from wasmline.training import Decision, Metrics, ModelReader, ModelRecord, ModelRegistry, PromotionLog, model_reference
from wasmline.training.model_serving import ModelServing, ServingFacts, decide_serving


def digest(letter: str) -> str:
    return f"sha256:{letter * 64}"


FIRST = ModelReference(name="eta", version="1.0.0", digest=digest("1"), dataset=digest("d"))
CHAMPION = ModelReference(name="eta", version="1.1.0", digest=digest("2"), dataset=digest("d"))


def deployment(model: ModelReference | None, *, name: str = "eta", wasm: str = digest("a"), **state: Any) -> Deployment:
    spec = DeploymentSpec(
        name=name,
        version=model.version if model else "3.0.0",
        digest=wasm,
        input_topic="features",
        output_topics=("eta", "eta.dlq"),
        dead_letter_topic="eta.dlq",
        model=model,
    )
    return Deployment(spec=spec, generation=4, updated_ms=1, **{"state": "running", **state})


def decided(*deployments: Deployment, **facts: Any) -> ModelServing:
    names = {each.spec.name for each in deployments} or {"eta"}
    known: dict[str, Any] = {"champion": CHAMPION, "modules": dict.fromkeys(sorted(names), digest("a")), **facts}
    return decide_serving(ServingFacts(model="eta", deployments=deployments, **known))


RUNS = "generation 4 of eta runs eta@1.0.0"
ABSENT: dict[str, Any] = {"modules": {"eta": None}}
CASES: dict[str, tuple[ModelServing, str, str]] = {
    "the champion": (decided(deployment(CHAMPION)), "serving", "generation 4 of eta runs eta@1.1.0"),
    "the version before": (
        decided(deployment(FIRST)),
        "other version",
        f"{RUNS}, but the champion is eta@1.1.0: run wasmline deploy eta@1.1.0",
    ),
    "the version before, after a rollback": (
        decided(deployment(FIRST), rolled_back=True),
        "other version",
        f"{RUNS}, but the champion is eta@1.1.0: run wasmline models rollback eta --to 1.1.0",
    ),
    "no module": (
        decided(**ABSENT),
        "not published",
        "the transform eta@1.1.0: run wasmline models compile eta@1.1.0, then wasmline deploy eta@1.1.0",
    ),
    "no module, while another version runs": (
        decided(deployment(FIRST), **ABSENT),
        "not published",
        f"is not published as the transform eta@1.1.0; {RUNS}: run wasmline models compile eta@1.1.0",
    ),
    "a module that is not published": (decided(deployment(CHAMPION), **ABSENT), "not published", "; generation 4 of"),
    "a module under another name": (
        decided(modules={"eta-north": None}),
        "not published",
        "run wasmline models compile eta@1.1.0 --transform eta-north, then wasmline deploy eta-north@1.1.0",
    ),
    "no deployment": (
        decided(),
        "not deployed",
        "no deployment of this cluster serves the champion eta@1.1.0: run wasmline deploy eta@1.1.0",
    ),
    "no model": (
        decided(deployment(None)),
        "other model",
        "generation 4 of eta runs no model, but the champion is eta@1.1.0: run wasmline deploy eta@1.1.0",
    ),
    "another model": (
        decided(deployment(replace(CHAMPION, name="price")), rolled_back=True),
        "other model",
        "runs price@1.1.0, but the champion is eta@1.1.0: run wasmline deploy eta@1.1.0",
    ),
    "other bytes of the model": (
        decided(deployment(replace(CHAMPION, digest=digest("3")))),
        "other bytes",
        f"its model is {digest('3')} and the champion {digest('2')}",
    ),
    "another dataset": (decided(deployment(replace(CHAMPION, dataset=digest("e")))), "other bytes", "datasets differ"),
    "other bytes of the module": (
        decided(deployment(CHAMPION, wasm=digest("b"))),
        "other bytes",
        f"its module is {digest('b')} and the published one {digest('a')}: run wasmline deploy eta@1.1.0",
    ),
    "a paused champion": (
        decided(deployment(CHAMPION, state="paused", reason="too many failures")),
        "paused",
        "generation 4 of eta runs eta@1.1.0, but is paused: too many failures: run wasmline resume eta",
    ),
    "two deployments, of which one lags": (
        decided(deployment(CHAMPION), deployment(FIRST, name="eta-north")),
        "other version",
        "generation 4 of eta-north runs eta@1.0.0",
    ),
    "no champion": (decided(champion=None, modules={}), "no champion", "no version of eta was promoted"),
    "a deployment without a champion": (
        decided(deployment(FIRST), champion=None, modules={}),
        "no champion",
        f"{RUNS}, but no version of eta was promoted: promote it, or pause the deployment",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_serves_is_compared_with_the_champion(case: str) -> None:
    found, state, told = CASES[case]
    assert found.state == state
    assert told in found.explanation
    assert found.agrees == (case in ("the champion", "no champion"))


@pytest.fixture
def models(tmp_path: Path, record: ModelRecord, metrics: Metrics) -> str:
    """Return a registry whose model eta has two versions, of which the first is the champion."""
    known = ModelRegistry(str(tmp_path / "models"))
    for number in range(2):
        known.publish(record, b"%d" % number)
    promote = Decision(decision="promote", reason="better")
    PromotionLog(known.url).append("eta", "1.0.0", promote, champion=None, metrics=metrics)
    return known.url


def publish(models: str, registry: str, wasm: bytes, **changed: str) -> Version:
    reference = replace(model_reference(ModelRegistry(models).get("eta", "1.0.0")), **changed)
    metadata = ArtifactMetadata(transform={"model": plain(reference)})
    return FilesystemRegistry(registry).publish("eta", "1.0.0", wasm, metadata=metadata)


def test_the_facts_are_read_from_both_registries_and_the_deployments(models: str, tmp_path: Path) -> None:
    registry = str(tmp_path / "registry")
    champion, second = (model_reference(ModelRegistry(models).get("eta", each)) for each in ("1.0.0", "1.1.0"))

    def state(*deployments: Deployment) -> str:
        return ModelReader(models, registry).serving("eta", deployments).state

    assert state() == "not published"
    published = publish(models, registry, b"module")
    assert state() == state(deployment(None, name="other")) == "not deployed"
    assert state(deployment(second, name="other", wasm=published.digest)) == "not published", "as the name other"
    assert state(deployment(second, wasm=published.digest)) == "other version"
    assert state(deployment(champion)) == "other bytes"
    assert state(deployment(champion, wasm=published.digest)) == "serving"


def test_a_module_that_declares_other_bytes_is_not_the_champions(models: str, tmp_path: Path) -> None:
    registry = str(tmp_path / "registry")
    publish(models, registry, b"module", digest=digest("3"))
    assert ModelReader(models, registry).serving("eta", ()).state == "not published"


def test_a_model_that_does_not_exist_and_a_champion_that_is_gone_are_errors(models: str, tmp_path: Path) -> None:
    registry = str(tmp_path / "registry")
    with pytest.raises(VersionNotFound, match="did you mean eta"):
        ModelReader(models, registry).serving("etta", ())
    shutil.rmtree(Path(models) / "models/eta/1.0.0")
    with pytest.raises(VersionNotFound, match="which is live by promotions/eta/000001"):
        ModelReader(models, registry).serving("eta", ())


def test_a_malformed_module_of_the_champion_is_an_error_that_names_it(models: str, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    publish(models, str(registry), b"module")
    (registry / "modules/eta/1.0.0/index.json").write_text("{}")
    with pytest.raises(InvalidLayout, match=r"modules/eta/1\.0\.0"):
        ModelReader(models, str(registry)).serving("eta", ())
