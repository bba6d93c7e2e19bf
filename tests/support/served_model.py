"""A model of three versions with its registries, its topics and its deployment on a real Kafka."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.eta_model import eta_model, held_out
from wasmline.control import Deployment, DeploymentSpec, deploy, read_deployments
from wasmline.registry import FilesystemRegistry
from wasmline.testing.kafka import RunningKafka
from wasmline.training import (
    Decision,
    ModelReader,
    ModelRecord,
    ModelRegistry,
    ModelServing,
    Promotion,
    PromotionLog,
    RollbackPlan,
    RollbackResult,
    TreeParameters,
    plan_rollback,
    publish_model,
    roll_back,
)

HELD_OUT_ROWS = 50


def small_models(rows: Sequence[dict[str, Any]], record: ModelRecord) -> list[tuple[ModelRecord, bytes]]:
    """Return three trainings, of one, two and three trees; each is better."""
    made = []
    for trees in (1, 2, 3):
        parameters = TreeParameters(trees=trees, depth=2, learning_rate=0.3, seed=7)
        metrics = replace(record.metrics, rmse=8.0 - trees)
        trained = replace(record, parameters=parameters, metrics=metrics, run=f"run-{trees}")
        made.append((trained, eta_model(rows, trained)))
    return made


class ServedModel:
    """The model, with versions 1.0.0, 1.1.0 and 1.2.0; nothing is promoted, published or deployed yet."""

    def __init__(
        self,
        kafka: RunningKafka,
        folder: Path,
        trained: Sequence[tuple[ModelRecord, bytes]],
        rows: Sequence[dict[str, Any]],
        name: str | None = None,
    ) -> None:
        self.name = name or f"eta-{uuid.uuid4()}"
        self.kafka = kafka
        self.registry = str(folder / "registry")
        self.models = str(folder / "models")
        self.topics = [kafka.topic() for _ in range(3)]
        self.log = PromotionLog(self.models)
        for record, model in trained:
            ModelRegistry(self.models).publish(
                replace(record, model=self.name), model, held_out=held_out(rows[:HELD_OUT_ROWS])
            )

    def copy(self, folder: Path) -> ServedModel:
        """Return the same model on the same cluster, with copies of its registries below ``folder``."""
        copied = copy(self)
        copied.registry = shutil.copytree(self.registry, str(folder / "registry"))
        copied.models = shutil.copytree(self.models, str(folder / "models"))
        copied.log = PromotionLog(copied.models)
        return copied

    def promote(self, *versions: str) -> Promotion:
        """Promote versions, one after the other; the last decision is returned."""
        for version in versions:
            made = self.log.append(
                self.name,
                version,
                Decision(decision="promote", reason="better"),
                champion=self.log.champion(self.name),
                metrics=ModelRegistry(self.models).get(self.name, version).record.metrics,
            )
        return made

    def publish(self, version: str, *, transform: str | None = None, topics: Sequence[str] | None = None) -> None:
        """Publish the module of a version."""
        source, output, dead_letters = topics or self.topics
        publish_model(
            models=self.models,
            model=self.name,
            version=version,
            registry=self.registry,
            input_topic=source,
            output_topic=output,
            dead_letter_topic=dead_letters,
            transform=transform,
        )

    def deploy(self, version: str, *, transform: str | None = None, **chosen: Any) -> Deployment:
        """Publish the module of a version, and deploy it."""
        self.publish(version, transform=transform)
        published, wasm = FilesystemRegistry(self.registry).load(transform or self.name, version)
        return deploy(self.kafka.config, replace(DeploymentSpec.of(published), **chosen), wasm)

    def deployed(self, transform: str | None = None) -> Deployment:
        """Return the current deployment."""
        name = transform or self.name
        return next(each for each in read_deployments(self.kafka.config) if each.spec.name == name)

    def serving(self) -> ModelServing:
        """Return how the model is served now."""
        reader = ModelReader(self.models, self.registry)
        return reader.serving(self.name, read_deployments(self.kafka.config))

    def plan(self, version: str | None = None, run: str = "") -> RollbackPlan:
        return plan_rollback(self.name, models=self.models, kafka=self.kafka.config, version=version, run=run)

    def roll_back(self, plan: RollbackPlan | None = None, **chosen: Any) -> RollbackResult:
        arguments = {"reason": "late orders", "by": "ada", **chosen}
        return roll_back(
            plan or self.plan(), models=self.models, registry=self.registry, kafka=self.kafka.config, **arguments
        )
