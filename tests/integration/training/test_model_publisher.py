"""A model version becomes a published transform: proven each time, and refused when anything of it was changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.eta_model import held_out
from wasmline.control import DeploymentSpec
from wasmline.control.deployment_topic import require_proven_model
from wasmline.digests import digest_of
from wasmline.registry import FilesystemRegistry
from wasmline.training import ModelRecord, ModelRegistry, PublishedModel, compile_proven, publish_model
from wasmline.wasm.model_section import ModuleModel, model_of

HELD_OUT = 200


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, model: bytes, record: ModelRecord, rows: list[Any]) -> str:
    """A registry with a version of the model."""
    registry = ModelRegistry(str(tmp_path_factory.mktemp("models")))
    registry.publish(record, model, held_out=held_out(rows[:HELD_OUT]))
    return registry.url


@pytest.fixture(scope="module")
def publish(models: str) -> Callable[..., PublishedModel]:
    def published(registry: str, **changed: Any) -> PublishedModel:
        arguments: dict[str, Any] = {
            "models": models,
            "model": "eta",
            "version": "1.0.0",
            "registry": registry,
            "input_topic": "features",
            "output_topic": "eta",
            "dead_letter_topic": "eta.dlq",
        }
        return publish_model(**arguments | changed)

    return published


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("registry"))


@pytest.fixture(scope="module")
def first(publish: Callable[..., PublishedModel], registry: str) -> PublishedModel:
    return publish(registry)


def found(wasm: bytes) -> ModuleModel:
    its = model_of(wasm)
    assert its is not None
    return its


def test_a_model_is_published_at_its_own_version_with_what_it_is(
    first: PublishedModel, registry: str, models: str, model: bytes, record: ModelRecord
) -> None:
    version, wasm = FilesystemRegistry(registry).load("eta", "1.0.0")
    assert (first.name, first.version, first.digest, first.published) == ("eta", "1.0.0", version.digest, True)
    assert (first.model.digest, first.model.dataset) == (digest_of(model), record.dataset_digest)
    section = found(wasm).section
    assert found(wasm).proven
    assert (section.model, section.proof, section.holdout.rmse) == (first.model, first.proof, record.metrics.rmse)
    assert [(each.name, each.type, each.unit, each.missing) for each in section.inputs] == [
        ("id", "string", "", "dead_letter"),
        ("km", "double", "km", "default_branch"),
        ("age", "bigint", "years", "default_branch"),
        ("vehicle", "string", "", "default_branch"),
    ]
    assert (section.target, section.unit) == ("minutes", "min")
    assert section.inputs[3].categories == record.layout.categories["vehicle"]
    spec = DeploymentSpec.of(version)
    assert spec.model == first.model
    assert (spec.output_topics, spec.dead_letter_topic) == (("eta", "eta.dlq"), "eta.dlq")
    require_proven_model(spec, wasm)
    assert compile_proven(models=models, model="eta", version="1.0.0").wasm == wasm
