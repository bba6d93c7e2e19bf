"""Reads the models of a registry, their versions, the decisions on them, and how they are served."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from wasmline.control import Deployment
from wasmline.errors import RegistryError, TrainingError, UnsupportedSpecVersion
from wasmline.model_reference import ModelReference
from wasmline.registry import FilesystemRegistry
from wasmline.registry.remembered_folders import RememberedFolders
from wasmline.registry.semver import newest
from wasmline.registry.storage import open_storage
from wasmline.training.document_cache import DocumentCache
from wasmline.training.model_overview import DecisionOverview, ModelOverview, ModelVersionOverview
from wasmline.training.model_publisher import reference_to
from wasmline.training.model_registry import ModelRegistry
from wasmline.training.model_serving import ModelServing, ServingFacts, decide_serving, published_module, serves
from wasmline.training.promotion_log import PromotionLog

MAX_LISTED = 1_000
"""Maximum versions of a model, and decisions on it, that are returned: the newest ones."""

MAX_DOCUMENTS = 10_000
"""Maximum of cached overviews of each kind, which take about a kilobyte each."""

_OTHER_MODEL = ""
"""In place of the digest of a published module that has another model."""


class ModelReader:
    """Reads a registry of models, at ``models``, and the ``registry`` of their modules, both folders or fsspec URLs.

    A stored document never changes, and is read once: reading again lists folders, with a request for each model and
    each log in an object store, and reads the documents that are new. One that was removed between two readings is
    forgotten. For any thread.

    Every method but ``read`` raises the RegistryError of what it cannot read, UnsupportedSpecVersion for what a later
    release has stored, and InvalidModel for a version with malformed digests.
    """

    def __init__(self, models: str, registry: str) -> None:
        storage, modules = (RememberedFolders(open_storage(url)) for url in (models, registry))
        self._models = ModelRegistry(models, storage=storage)
        self._log = PromotionLog(models, storage=storage)
        self._registry = FilesystemRegistry(registry, storage=modules)
        self._versions = DocumentCache(self._read_version, MAX_DOCUMENTS)
        self._decisions = DocumentCache(self._read_decision, MAX_DOCUMENTS)
        self._modules = DocumentCache(self._read_module, MAX_DOCUMENTS)

    def read(self, deployments: Collection[Deployment] | None = None) -> list[ModelOverview]:
        """Return all models by name, and how ``deployments`` serve them. One that cannot be read hides no other.

        Raises RegistryUnavailable if the models cannot be listed.
        """
        catalog = self._models.catalog()
        self._versions.retain_names(catalog.__contains__)
        self._decisions.retain_names(catalog.__contains__)
        return [self._overview(name, versions, deployments) for name, versions in catalog.items()]

    def versions(self, name: str) -> list[ModelVersionOverview]:
        """Return the highest MAX_LISTED versions of a model in ascending precedence."""
        versions = self._models.versions(name)
        self._forget_versions(name, versions)
        return [self._versions.get(name, version) for version in versions[-MAX_LISTED:]]

    def decisions(self, name: str) -> list[DecisionOverview]:
        """Return the last MAX_LISTED decisions on a model, the oldest first."""
        return [self._decisions.get(name, number) for number in self._numbers(name)[-MAX_LISTED:]]

    def serving(self, name: str, deployments: Collection[Deployment], *, transform: str | None = None) -> ModelServing:
        """Return how a model's champion is served by the cluster's ``deployments``.

        Considered are those that declare the model, and that of ``transform``, by default the model's name. Raises
        VersionNotFound for an unknown model or a champion that the registry lacks.
        """
        versions = self._models.versions(name)
        if not versions:
            self._models.get(name)  # an unknown model is an error
        self._forget_versions(name, versions)
        numbers = self._numbers(name)
        champion = self._champion(name, versions, numbers)
        return self._serving(name, champion, numbers, deployments, transform or name)

    def _overview(self, name: str, versions: list[str], deployments: Collection[Deployment] | None) -> ModelOverview:
        champion, rmse, serving, problem = None, None, None, ""
        try:
            self._forget_versions(name, versions)
            numbers = self._numbers(name)
            champion = self._champion(name, versions, numbers)
            if shown := champion or newest(versions):
                rmse = self._versions.get(name, shown).rmse
            if deployments is not None:
                serving = self._serving(name, champion, numbers, deployments, name)
        except (RegistryError, TrainingError, UnsupportedSpecVersion) as error:
            problem = str(error)
        return ModelOverview(
            model=name, versions=tuple(versions), champion=champion, rmse=rmse, serving=serving, problem=problem
        )

    def _forget_versions(self, name: str, versions: Collection[str]) -> None:
        self._versions.retain(name, set(versions).__contains__)

    def _numbers(self, name: str) -> Sequence[int]:
        numbers = self._log.numbers(name)
        self._decisions.retain(name, lambda number: number <= len(numbers))
        return numbers

    def _champion(self, name: str, versions: Collection[str], numbers: Sequence[int]) -> str | None:
        live = self._decisions.get(name, numbers[-1]).live if numbers else None
        if live is not None and live not in versions:
            raise self._log.lost_champion(name, live, numbers[-1])
        return live

    def _serving(
        self,
        name: str,
        champion: str | None,
        numbers: Sequence[int],
        deployments: Collection[Deployment],
        transform: str,
    ) -> ModelServing:
        live = self._reference(name, champion) if champion else None
        serving = tuple(each for each in deployments if each.spec.name == transform or serves(each, name))
        transforms = {each.spec.name for each in serving} or {transform}
        return decide_serving(
            ServingFacts(
                model=name,
                champion=live,
                modules={each: self._module(each, live) for each in sorted(transforms)} if live else {},
                deployments=serving,
                rolled_back=self._is_rolled_back(name, numbers),
            )
        )

    def _reference(self, name: str, version: str) -> ModelReference:
        found = self._versions.get(name, version)
        return reference_to(name, version, digest=found.digest, dataset=found.dataset_digest)

    def _is_rolled_back(self, name: str, numbers: Sequence[int]) -> bool:
        """Return whether the last change of the champion was a rollback."""
        decisions = (self._decisions.get(name, number) for number in reversed(numbers))
        return next((each.decision == "rollback" for each in decisions if each.decision != "keep"), False)

    def _module(self, transform: str, model: ModelReference) -> str | None:
        """Return the digest of the published module of a model version, None without one."""
        published = set(self._registry.versions(transform))
        self._modules.retain(transform, lambda each: each.version in published)
        if model.version not in published:
            return None
        return self._modules.get(transform, model) or None

    def _read_version(self, name: str, version: str) -> ModelVersionOverview:
        return ModelVersionOverview.of(self._models.get(name, version))

    def _read_decision(self, name: str, number: int) -> DecisionOverview:
        return DecisionOverview.of(self._log.read(name, number))

    def _read_module(self, transform: str, model: ModelReference) -> str:
        module = published_module(self._registry, transform, model)
        return module.digest if module else _OTHER_MODEL
