"""A model version becomes a published transform: proven each time, and refused when anything of it was changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from airflow.sdk.exceptions import AirflowFailException

from support.eta_model import held_out
from wasmline.control import DeploymentSpec
from wasmline.control.deployment_topic import require_proven_model
from wasmline.digests import digest_of
from wasmline.errors import InvalidModel, ModelProofFailed, VersionExists, VersionNotFound
from wasmline.registry import FilesystemRegistry
from wasmline.testing import guests
from wasmline.training import (
    Decision,
    ModelRecord,
    ModelRegistry,
    PublishedModel,
    compile_proven,
    promote,
    publish_model,
)
from wasmline.training.model_compiler import scorer_module
from wasmline.training.model_data import MARK, encode_model, parse_ensemble
from wasmline.wasm.binary import add_data, add_last_section, split_last_section
from wasmline.wasm.inspection import inspect
from wasmline.wasm.model_section import SECTION, ModelInModule, model_of, with_model
from wasmline_provider.operators.model import CompileModelOperator

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


def found(wasm: bytes) -> ModelInModule:
    its = model_of(wasm)
    assert its is not None
    return its


def test_a_model_is_published_at_its_own_version_with_what_it_is(
    first: PublishedModel, registry: str, models: str, model: bytes, record: ModelRecord
) -> None:
    version, wasm = FilesystemRegistry(registry).load("eta", "1.0.0")
    assert (first.name, first.version, first.digest, first.is_new) == ("eta", "1.0.0", version.digest, True)
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


def test_a_repeated_run_proves_the_published_version_again_and_adds_nothing(
    publish: Callable[..., PublishedModel], first: PublishedModel, registry: str
) -> None:
    again = publish(registry)
    assert again == replace(first, is_new=False, seconds=again.seconds)
    assert FilesystemRegistry(registry).versions("eta") == ["1.0.0"]


def test_a_version_that_another_scorer_was_compiled_to_is_kept_if_it_still_proves(
    publish: Callable[..., PublishedModel], first: PublishedModel, registry: str, tmp_path: Path
) -> None:
    version, wasm = FilesystemRegistry(registry).load("eta", "1.0.0")
    older = add_last_section(without_section(wasm), b"producers", b"")
    described = with_model(older, replace(found(wasm).section, module=digest_of(older)))
    FilesystemRegistry(str(tmp_path)).publish("eta", "1.0.0", described, metadata=version.metadata)
    kept = publish(str(tmp_path))
    assert (kept.digest, kept.is_new, kept.proof) == (digest_of(described), False, first.proof)


def test_a_published_version_says_what_it_was_made_of(first: PublishedModel, registry: str) -> None:
    statement = FilesystemRegistry(registry).provenance("eta", "1.0.0")
    assert statement is not None
    assert statement["subject"] == [{"name": "eta.wasm", "digest": {"sha256": hexadecimal(first.digest)}}]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["buildType"] == "urn:wasmline:model:1"
    dependencies = {each["name"]: each.get("digest") for each in definition["resolvedDependencies"]}
    assert dependencies["model eta@1.0.0"] == {"sha256": hexadecimal(first.model.digest)}
    assert dependencies["dataset"] == {"sha256": hexadecimal(first.model.dataset)}
    assert len(dependencies["sources"]["sha256"]) == 64
    assert any(name.startswith("ziglang ") for name in dependencies)


def hexadecimal(digest: str) -> str:
    return digest.removeprefix("sha256:")


def without_section(wasm: bytes) -> bytes:
    split = split_last_section(wasm, SECTION)
    assert split is not None
    return split[0]


def test_a_module_with_its_section_is_one_that_brokers_take(first: PublishedModel, registry: str) -> None:
    described = inspect(FilesystemRegistry(registry).read("eta", "1.0.0"))
    assert described.redpanda.accepted
    assert described.wasmline.accepted


def test_a_model_may_be_published_as_a_transform_of_another_name(
    publish: Callable[..., PublishedModel], first: PublishedModel, tmp_path: Path
) -> None:
    other = publish(str(tmp_path), transform="delivery-eta")
    assert (other.name, other.version, other.digest, other.model) == (
        "delivery-eta",
        "1.0.0",
        first.digest,
        first.model,
    )


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"input_topic": "other"}, "declares another input-topic"),
        ({"output_topic": "other"}, "declares another output-topics"),
    ],
)
def test_a_version_that_was_published_for_other_topics_is_named(
    publish: Callable[..., PublishedModel],
    first: PublishedModel,
    registry: str,
    changed: dict[str, str],
    complaint: str,
) -> None:
    with pytest.raises(VersionExists, match=rf"eta@1\.0\.0 exists in .* and {complaint}; .*: publish eta@1\.0\.0 as"):
        publish(registry, **changed)


def test_a_foreign_transform_of_that_name_and_version_is_named(
    publish: Callable[..., PublishedModel], registry: str, first: PublishedModel, tmp_path: Path
) -> None:
    modules = FilesystemRegistry(str(tmp_path))
    modules.publish("eta", "1.0.0", guests.guest())
    with pytest.raises(VersionExists, match="and is no compiled model; "):
        publish(modules.url)
    wasm = FilesystemRegistry(registry).read("eta", "1.0.0")
    section = found(wasm).section
    other = replace(section, model=replace(section.model, dataset=digest_of(b"other")))
    modules.publish("other", "1.0.0", with_model(without_section(wasm), other))
    with pytest.raises(VersionExists, match=r"and is another model, eta@1\.0\.0"):
        publish(modules.url, transform="other")


def test_a_published_module_that_was_changed_is_refused_with_or_without_a_new_section(
    publish: Callable[..., PublishedModel],
    registry: str,
    first: PublishedModel,
    model: bytes,
    record: ModelRecord,
    tmp_path: Path,
) -> None:
    """Whoever can write the registry can write a section, too: so the module is proven again."""
    version, wasm = FilesystemRegistry(registry).load("eta", "1.0.0")
    section = found(wasm).section
    ensemble = parse_ensemble(model, len(record.columns))
    base = np.nextafter(ensemble.base_score, np.float32(0))
    data = encode_model(replace(ensemble, base_score=base), record.layout, "id", record.dataset.fields)
    other = add_data(scorer_module(), data, MARK)
    modules = FilesystemRegistry(str(tmp_path))
    modules.publish("eta", "1.0.0", with_model(other, section), metadata=version.metadata)
    with pytest.raises(InvalidModel, match=r"eta@1\.0\.0 in .* was changed after its proof: remove the version"):
        publish(modules.url)
    made_up = with_model(other, replace(section, module=digest_of(other)))
    modules.publish("forged", "1.0.0", made_up, metadata=version.metadata)
    with pytest.raises(ModelProofFailed):
        publish(modules.url, transform="forged")


def test_a_model_that_cannot_be_proven_is_not_published(
    publish: Callable[..., PublishedModel], model: bytes, record: ModelRecord, tmp_path: Path
) -> None:
    models = ModelRegistry(str(tmp_path / "models"))
    models.publish(record, model)
    with pytest.raises(InvalidModel, match="was stored without its held-out rows"):
        publish(str(tmp_path), models=models.url)
    with pytest.raises(VersionNotFound):
        publish(str(tmp_path), version="1.1.0")
    assert FilesystemRegistry(str(tmp_path)).names() == []


def test_the_operator_compiles_the_champion_or_the_version_that_it_is_given(
    model: bytes, record: ModelRecord, rows: list[Any], tmp_path: Path
) -> None:
    models = ModelRegistry(str(tmp_path / "models"))
    for seed in (7, 8):
        dataset = replace(record.dataset, seed=seed)
        other = replace(record, dataset=dataset, dataset_digest=dataset.digest)
        models.publish(other, model, held_out=held_out(rows[:20]))
    operator = CompileModelOperator(
        task_id="compile",
        models=models.url,
        model="eta",
        version="",
        registry=str(tmp_path),
        input_topic="features",
        output_topic="eta",
        dead_letter_topic="eta.dlq",
        transform="",
    )
    with pytest.raises(AirflowFailException, match=r"VersionNotFound: eta has no champion in .*: promote a version"):
        operator.execute({})
    promote(models.url, "eta", "1.0.0", Decision(decision="promote", reason=""), champion=None, metrics=record.metrics)
    result = operator.execute({})
    operator.version = "1.1.0"
    given = operator.execute({})
    registry = FilesystemRegistry(str(tmp_path))
    for found, version in ((result, "1.0.0"), (given, "1.1.0")):
        published = registry.get("eta", version)
        assert (found["name"], found["version"], found["digest"]) == ("eta", version, published.digest)
        assert found["size_bytes"] == published.size_bytes
        assert found["model"] == published.metadata.transform["model"]
        assert found["proof"]["held_out"] == 20
    assert (result["is_new"], operator.execute({})["is_new"]) == (True, False)
