"""A model is rolled back with the module that serves it: whole, or named and completed, and never by two at once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from support.served_model import ServedModel, small_models
from wasmline.clock import now_ms
from wasmline.control import Deployment, DeploymentSpec, DeploymentTopic
from wasmline.errors import (
    Conflict,
    DeploymentNotFound,
    InvalidRollback,
    TopicNotFound,
    VersionExists,
    VersionNotFound,
    WasmlineError,
)
from wasmline.kafka import Topics
from wasmline.registry import FilesystemRegistry
from wasmline.testing.kafka import RunningKafka
from wasmline.training import ModelRecord, RollbackPlan, RollbackResult, champion_deployment, deploy_champion
from wasmline.training.champion_deployment import require_champion


@pytest.fixture(scope="module")
def make(
    kafka: RunningKafka,
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, Any]],
    record: ModelRecord,
) -> Callable[[], ServedModel]:
    """Return a function that makes a model: its second version is the champion, and nothing is deployed."""
    trained = small_models(rows, record)

    def made() -> ServedModel:
        model = ServedModel(kafka, tmp_path_factory.mktemp("model"), trained, rows)
        model.promote("1.0.0", "1.1.0")
        return model

    return made


@pytest.fixture(scope="module")
def deployed(make: Callable[[], ServedModel]) -> ServedModel:
    """Return a model whose champion serves; the tests do not change it."""
    model = make()
    model.deploy("1.1.0")
    model.publish("1.0.0")
    return model


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A rollback with the deployments before and after it: of ``model``, and ``-north`` of it."""

    model: ServedModel
    began_ms: int
    before: list[Deployment]
    result: RollbackResult
    after: list[Deployment]


@pytest.fixture(scope="module")
def done(make: Callable[[], ServedModel]) -> Done:
    """Return a rollback of a model with two deployments.

    The earlier module is not published for the first, and published for other topics for the second, which is paused.
    """
    model = make()
    names = [model.name, f"{model.name}-north"]
    model.deploy("1.1.0", env={"REGION": "south"}, max_failure_share=0.1, provenance=False)
    model.publish("1.0.0", transform=names[1], topics=("earlier.features", "earlier.eta", "earlier.dlq"))
    model.deploy("1.1.0", transform=names[1])
    with closing(DeploymentTopic(model.kafka.config)) as topic:
        topic.pause(names[1], "too many failures")
    before, began_ms = [model.deployed(name) for name in names], now_ms()
    result = model.roll_back(model.plan(run="r1"), run="r1")
    after = [model.deployed(name) for name in names]
    return Done(model=model, began_ms=began_ms, before=before, result=result, after=after)


def test_who_decided_a_rollback_when_and_why_is_kept(done: Done) -> None:
    *_, decision = done.model.log.history(done.model.name)
    assert done.result.promotion == decision
    assert (decision.decision, decision.version, decision.champion) == ("rollback", "1.0.0", "1.1.0")
    assert (decision.by, decision.reason, decision.run) == ("ada", "late orders", "r1")
    assert done.began_ms <= decision.decided_ms <= now_ms()
    assert done.model.log.champion(done.model.name) == "1.0.0"


def test_the_module_goes_back_with_the_model_and_the_rest_of_each_deployment_stays(done: Done) -> None:
    registry = FilesystemRegistry(done.model.registry)
    for before, after in zip(done.before, done.after, strict=True):
        module = registry.get(before.spec.name, "1.0.0")
        assert after.spec.model is not None
        assert after.spec.model.version == "1.0.0"
        assert after.spec == replace(before.spec, version="1.0.0", digest=module.digest, model=after.spec.model)
        assert (after.generation > before.generation, after.state) == (True, "running")
    assert done.result.deployments == tuple(done.after)
    assert done.model.serving().state == "serving"


def test_a_module_that_is_not_published_is_made_for_the_topics_of_its_deployment(done: Done) -> None:
    declared = FilesystemRegistry(done.model.registry).get(done.model.name, "1.0.0").metadata.transform
    assert [declared["input-topic"], *declared["output-topics"]] == done.model.topics


def test_a_run_that_is_tried_again_has_nothing_left_to_do(done: Done) -> None:
    again = done.model.plan(run="r1")
    assert (again.version, again.recorded, again.deployments) == ("1.0.0", done.result.promotion, ())
    assert done.model.roll_back(again, run="r1").deployments == ()
    assert len(done.model.log.history(done.model.name)) == 3


def test_a_rollback_that_ends_between_its_decision_and_its_deployment_is_named_and_completed(
    make: Callable[[], ServedModel],
) -> None:
    model = make()
    model.deploy("1.1.0")
    plan = model.plan()
    model.deploy("1.2.0")
    with pytest.raises(Conflict, match="is at generation 2, not 1"):
        model.roll_back(plan)
    decisions = model.log.history(model.name)
    assert (decisions[-1].decision, decisions[-1].version) == ("rollback", "1.0.0")
    named = model.serving()
    assert named.state == "other version"
    assert named.explanation == (
        f"generation 2 of {model.name} runs {model.name}@1.2.0, but the champion is {model.name}@1.0.0: "
        f"run wasmline models rollback {model.name} --to 1.0.0"
    )
    again = model.plan()
    assert again == model.plan("1.0.0")
    completed = model.roll_back(again, reason="again", by="bob")
    assert completed.promotion == decisions[-1], "the reason and the user are those of the decision"
    assert model.log.history(model.name) == decisions
    assert model.serving().state == "serving"
    assert model.plan("1.0.0").deployments == (), "nothing is left"


def test_of_two_rollbacks_at_once_one_wins_and_the_other_is_a_conflict(make: Callable[[], ServedModel]) -> None:
    model = make()
    model.deploy("1.1.0")
    plans = [model.plan(), model.plan()]
    start = threading.Barrier(2)
    results: list[str] = []

    def run(plan: RollbackPlan) -> None:
        start.wait()
        try:
            model.roll_back(plan)
            results.append("done")
        except Conflict:
            results.append("conflict")

    threads = [threading.Thread(target=run, args=(plan,)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["conflict", "done"]
    assert len(model.log.history(model.name)) == 3
    assert (model.serving().state, model.deployed().generation) == ("serving", 2)


def test_a_promotion_meanwhile_wins_and_the_rollback_changes_nothing(deployed: ServedModel, tmp_path: Path) -> None:
    model = deployed.copy(tmp_path)
    plan = model.plan()
    model.promote("1.2.0")
    with pytest.raises(Conflict, match=r"1\.2\.0 is live, not 1\.1\.0"):
        model.roll_back(plan)
    assert model.log.champion(model.name) == "1.2.0"
    assert (model.deployed().spec.version, model.deployed().generation) == ("1.1.0", 1)


def test_a_deploy_of_a_version_that_was_rolled_back_is_a_conflict_however_late_it_comes(
    make: Callable[[], ServedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make()
    model.deploy("1.1.0")
    published, wasm = FilesystemRegistry(model.registry).load(model.name, "1.1.0")
    spec = DeploymentSpec.of(published)

    def deploy_late(**chosen: Any) -> Deployment:
        return deploy_champion(model.kafka.config, spec, wasm, models=model.models, **chosen)

    assert deploy_late().generation == 1

    def rolled_back_meanwhile(models: str, spec: DeploymentSpec) -> None:
        require_champion(models, spec)
        model.roll_back()

    with monkeypatch.context() as patched:
        patched.setattr(champion_deployment, "require_champion", rolled_back_meanwhile)
        with pytest.raises(Conflict, match="is at generation 2, not 1"):
            deploy_late()
    for chosen in ({}, {"expected_generation": 2}):
        with pytest.raises(Conflict, match=rf"has {model.name}@1\.1\.0, and the champion is {model.name}@1\.0\.0"):
            deploy_late(**chosen)
    assert (model.deployed().spec.version, model.deployed().generation) == ("1.0.0", 2)
    assert model.serving().state == "serving"


def forged(model: ServedModel) -> None:
    """Put the module of another version in the place of the published one."""
    published = FilesystemRegistry(model.registry)
    shutil.rmtree(Path(model.registry) / "modules" / model.name / "1.0.0")
    later, wasm = published.load(model.name, "1.1.0")
    published.publish(model.name, "1.0.0", wasm, metadata=later.metadata)


def lost(model: ServedModel) -> None:
    """Remove the version to return to."""
    shutil.rmtree(Path(model.models) / "models" / model.name / "1.0.0")


def no_topic(model: ServedModel) -> None:
    """Delete the output topic; it comes last, as the model's cluster is shared."""
    Topics(model.kafka.config).delete([model.topics[1]])


@pytest.mark.parametrize(
    ("obstacle", "error"), [(forged, VersionExists), (lost, VersionNotFound), (no_topic, TopicNotFound)]
)
def test_what_stands_in_the_way_is_found_before_anything_is_changed(
    deployed: ServedModel, tmp_path: Path, obstacle: Callable[[ServedModel], None], error: type[WasmlineError]
) -> None:
    model = deployed.copy(tmp_path)
    obstacle(model)
    with pytest.raises(error):
        model.roll_back()
    assert len(model.log.history(model.name)) == 2
    assert model.deployed().generation == 1


def test_a_rollback_needs_a_reason_and_a_deployment(deployed: ServedModel, make: Callable[[], ServedModel]) -> None:
    with pytest.raises(InvalidRollback, match="needs a reason"):
        deployed.roll_back(reason=" ")
    with pytest.raises(DeploymentNotFound, match="name the cluster that does"):
        make().plan()
