"""The append-only log of decisions that make a model version the champion."""

from __future__ import annotations

from collections.abc import Sequence

from wasmline.clock import now_ms
from wasmline.errors import VersionNotFound
from wasmline.registry.storage import Storage, open_storage
from wasmline.training.decision_record import conflict, next_decision, own_decision
from wasmline.training.evaluate import Metrics
from wasmline.training.gate import Decision
from wasmline.training.model_registry import ModelRegistry, ModelVersion
from wasmline.training.numbered_log import NumberedLog
from wasmline.training.promotion_record import (
    MAX_BYTES,
    ROLLBACK_SPEC_VERSION,
    Promotion,
    parse_promotion,
    promotion_document,
)
from wasmline.training.rollback_target import rolled_back

FOLDER = "promotions"

MAX_TRIES = 100
"""Each try after the first follows another run's decision."""


class PromotionLog:
    """The decisions on the models of one registry, one file each, numbered from 1 without gaps."""

    def __init__(self, url: str, *, storage: Storage | None = None) -> None:
        """``storage``: the one that is at ``url``, if it is open."""
        self._models = ModelRegistry(url, storage=storage)
        self._log = NumberedLog(
            storage=storage or open_storage(url),
            folder=FOLDER,
            file="promotion.json",
            noun="decision",
            parse=parse_promotion,
            max_bytes=MAX_BYTES,
        )

    def champion(self, name: str) -> str | None:
        """Return the live version of a model, or None. Raises VersionNotFound if the registry lacks it."""
        numbers = self.numbers(name)
        live = self.read(name, numbers[-1]).live if numbers else None
        if live is not None and live not in self._models.versions(name):
            raise self.lost_champion(name, live, numbers[-1])
        return live

    def lost_champion(self, name: str, live: str, number: int) -> VersionNotFound:
        """Return the error of a version that is live by decision ``number`` and that the registry lacks."""
        return VersionNotFound(
            f"no {name}@{live} in {self._models.url}, which is live by {self._log.path(name, number)}: restore it, or "
            "promote another version",
            name=name,
            version=live,
        )

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of the decisions on a model in order. Raises InvalidLayout for a gap."""
        return self._log.numbers(name)

    def read(self, name: str, number: int) -> Promotion:
        """Return one decision on a model. Raises InvalidLayout if it is malformed."""
        return self._log.read(name, number)

    def history(self, name: str) -> list[Promotion]:
        """Return all decisions on a model, the oldest first."""
        return self._log.read_all(name)

    def append(
        self,
        name: str,
        version: str,
        decision: Decision,
        *,
        champion: str | None,
        metrics: Metrics,
        champion_metrics: Metrics | None = None,
        run: str = "",
        by: str = "",
    ) -> Promotion:
        """Record a decision that was made beside ``champion``, and return it.

        A keep is recorded beside whichever champion is live, without figures beside another. A decision that the same
        run recorded is returned unchanged; a user may think again. Raises Conflict for a promotion if another champion
        is live, if its model was rolled back, or if another champion followed the same run's promotion, and for a
        user's refusal of the live version; VersionNotFound for a version that does not exist; InvalidArtifact for a
        decision that could not be read back, such as metrics that are not numbers.
        """
        return self._record(
            Promotion(
                model=name,
                number=0,
                decision=decision.decision,
                reason=decision.reason,
                version=version,
                champion=champion,
                metrics=metrics,
                champion_metrics=champion_metrics,
                decided_ms=now_ms(),
                run=run,
                by=by,
                refusal=decision.refusal,
                held_out=decision.held_out,
                segments=decision.segments,
                forward=decision.forward,
            )
        )

    def roll_back(
        self, name: str, version: str, *, champion: str, reason: str, run: str = "", by: str = ""
    ) -> Promotion:
        """Record that ``version`` replaces ``champion``, which is live, and return the decision.

        The metrics are each model's own; None for a champion that the registry has lost. Raises Conflict if another
        champion is live, or followed the same run's rollback; the other errors of ``append``; ValueError as Promotion
        does.
        """
        known = champion in self._models.versions(name)
        return self._record(
            Promotion(
                model=name,
                number=0,
                decision="rollback",
                reason=reason,
                version=version,
                champion=champion,
                metrics=self._models.get(name, version).record.metrics,
                champion_metrics=self._models.get(name, champion).record.metrics if known else None,
                decided_ms=now_ms(),
                run=run,
                by=by,
                spec_version=ROLLBACK_SPEC_VERSION,
            )
        )

    def rolled_back(self, name: str, version: str) -> str:
        """Return why the gate does not promote a version: its model, by its bytes, was rolled back. Empty if not."""
        return self._rolled_back(self.history(name), self._models.get(name, version))

    def _rolled_back(self, history: Sequence[Promotion], version: ModelVersion) -> str:
        left = {each.champion for each in history if each.decision == "rollback" and each.champion}
        known = left.intersection(self._models.versions(version.name))
        same = {each for each in known if self._models.get(version.name, each).digest == version.digest}
        rollback = rolled_back(history, {version.version, *same})
        if rollback is None:
            return ""
        return (
            f"{version.version} is the model that decision {rollback.number} rolled back: roll back to it by name, or "
            "train on other records"
        )

    def _record(self, decided: Promotion) -> Promotion:
        """Store a decision under the next number, and return it: see ``append``."""
        version = self._models.get(decided.model, decided.version)
        for _ in range(MAX_TRIES):
            history = self.history(decided.model)
            if own := own_decision(history, decided):
                return own
            promotion = next_decision(history, decided)
            if promotion.decision == "promote" and (why := self._rolled_back(history, version)):
                raise conflict(promotion, why)
            if self._log.create(promotion.model, promotion.number, promotion_document(promotion)):
                return promotion
        raise conflict(decided, f"other runs recorded {MAX_TRIES} decisions meanwhile; retry")
