"""Log of the decisions that made a model version the champion: it is only appended to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from wasmline.clock import now_ms
from wasmline.documents import decode, encode
from wasmline.errors import Conflict, InvalidLayout
from wasmline.registry.layout import MAX_DOCUMENT_BYTES
from wasmline.registry.oci import check_name
from wasmline.registry.storage import open_storage
from wasmline.training.evaluate import Metrics
from wasmline.training.gate import Decision
from wasmline.training.models import ModelRegistry

FOLDER = "promotions"
_FILE = "promotion.json"
_NUMBER = re.compile(r"[0-9]{6}|[1-9][0-9]{6,8}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """One decision: ``version`` became the champion, or did not and ``champion`` (None: nobody) stayed.

    The metrics are those of both on the same held-out rows; None for a champion that was not measured.
    """

    model: str
    number: int
    decision: Literal["promote", "keep"]
    reason: str
    version: str
    champion: str | None
    metrics: Metrics
    champion_metrics: Metrics | None
    decided_ms: int
    run: str = ""
    spec_version: Literal[1] = 1

    @property
    def live(self) -> str | None:
        """The champion after this decision."""
        return self.version if self.decision == "promote" else self.champion


class PromotionLog:
    """The decisions on the models of one registry, one file each, numbered from 1 without gaps."""

    def __init__(self, url: str) -> None:
        self._models = ModelRegistry(url)
        self._storage = open_storage(url)

    def champion(self, name: str) -> str | None:
        """Return the live version of a model, or None."""
        history = self._numbers(name)
        return self._read(name, history[-1]).live if history else None

    def history(self, name: str) -> list[Promotion]:
        """Return all decisions on a model, the oldest first."""
        return [self._read(name, number) for number in self._numbers(name)]

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
    ) -> Promotion:
        """Record a decision that was taken while ``champion`` was live, and return it.

        A decision that the same run recorded last is returned as it is. Raises Conflict if another champion is live by
        now: the models must be compared anew; VersionNotFound for a version that does not exist.
        """
        self._models.get(name, version)
        numbers = self._numbers(name)
        last = self._read(name, numbers[-1]) if numbers else None
        if last and run and (last.run, last.version, last.decision) == (run, version, decision.decision):
            return last
        live = last.live if last else None
        if live != champion:
            raise _conflict(name, f"{live or 'nothing'} is live, not {champion or 'nothing'}")
        number = last.number + 1 if last else 1
        promotion = Promotion(
            model=name,
            number=number,
            decision=decision.decision,
            reason=decision.reason,
            version=version,
            champion=champion,
            metrics=metrics,
            champion_metrics=champion_metrics,
            decided_ms=now_ms(),
            run=run,
        )
        if not self._storage.create(_folder(name, number), [(_FILE, encode(promotion))]):
            raise _conflict(name, f"decision {number} was taken by another run meanwhile")
        return promotion

    def _numbers(self, name: str) -> list[int]:
        check_name(name)
        folders = self._storage.folders(f"{FOLDER}/{name}", _FILE)
        numbers = sorted(int(folder) for folder in folders if _NUMBER.fullmatch(folder))
        for expected, number in enumerate(numbers, start=1):
            if number != expected:
                path = _folder(name, number)
                raise InvalidLayout(
                    f"{path} in {self._storage.url} does not follow decision {expected - 1}: remove it, or restore "
                    "those between them",
                    path=path,
                )
        return numbers

    def _read(self, name: str, number: int) -> Promotion:
        path = f"{_folder(name, number)}/{_FILE}"
        promotion = decode(Promotion, self._storage.read(path, MAX_DOCUMENT_BYTES) or b"")
        if (promotion.model, promotion.number) != (name, number):
            told = f"decision {promotion.number} on {promotion.model[:140]!r}"
            raise InvalidLayout(f"{path} in {self._storage.url} holds {told}: remove it", path=path)
        return promotion


def promote(
    models: str,
    name: str,
    version: str,
    decision: Decision,
    *,
    champion: str | None,
    metrics: Metrics,
    champion_metrics: Metrics | None = None,
    run: str = "",
) -> Promotion:
    """Record a decision in the log of the registry at ``models``: see ``PromotionLog.append``."""
    return PromotionLog(models).append(
        name,
        version,
        decision,
        champion=champion,
        metrics=metrics,
        champion_metrics=champion_metrics,
        run=run,
    )


def _folder(name: str, number: int) -> str:
    return f"{FOLDER}/{name}/{number:06d}"


def _conflict(name: str, what: str) -> Conflict:
    return Conflict(f"model {name}: {what}. Compare the models again and decide anew", name=name, generation=None)
