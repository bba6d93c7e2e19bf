"""One decision on a model, as stored in a registry's promotion log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from wasmline.errors import InvalidArtifact
from wasmline.registry import Semver
from wasmline.registry.oci_manifest import decoded, encoded
from wasmline.training.evaluate import Metrics
from wasmline.training.gate import ErrorComparison
from wasmline.training.stored_documents import stored_document

MAX_BYTES = 64 * 1024
"""Maximum size of a decision as JSON: all decisions on a model are read at once."""

ROLLBACK_SPEC_VERSION: Literal[2] = 2
"""The spec version of rollbacks; other decisions have 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """One decision: ``version`` became the champion, or did not (keep) and ``champion`` (None: no champion) stayed.

    ``champion`` is the one before the decision. The metrics are those of both on the same held-out rows; None for a
    champion that was not measured. Those of a rollback are each model's own, from its training. ``refusal``,
    ``held_out``, ``segments`` and ``forward`` are the gate's figures, as in Decision; rollbacks, and decisions of
    earlier releases, have none. ``by`` is the user, if known. A rollback has ``spec_version`` 2, so that an earlier
    release does not misread it; the figures change the meaning of no decision. Raises InvalidReference
    for an invalid ``version`` or ``champion``, ValueError for a rollback to no other version or without a reason.
    """

    model: str
    number: int
    decision: Literal["promote", "keep", "rollback"]
    reason: str
    version: str
    champion: str | None
    metrics: Metrics
    champion_metrics: Metrics | None
    decided_ms: int
    run: str = ""
    by: str = ""
    refusal: str = ""
    held_out: ErrorComparison | None = None
    segments: dict[str, ErrorComparison] = field(default_factory=dict)
    forward: ErrorComparison | None = None
    spec_version: Literal[1, 2] = 1

    def __post_init__(self) -> None:
        for version in (self.version, self.champion):
            if version is not None:
                Semver.parse(version)
        if (self.decision == "rollback") != (self.spec_version == ROLLBACK_SPEC_VERSION):
            raise ValueError(f"a {self.decision} does not have the spec version {self.spec_version}")
        if self.decision == "rollback" and self.champion in (None, self.version):
            raise ValueError(f"a rollback from {self.champion} to {self.version} changes no champion")
        if self.decision == "rollback" and not self.reason.strip():
            raise ValueError("a rollback needs a reason")

    @property
    def live(self) -> str | None:
        """The champion after this decision."""
        return self.champion if self.decision == "keep" else self.version


def promotion_document(promotion: Promotion) -> bytes:
    """Return a decision as JSON. Raises InvalidArtifact if ``parse_promotion`` would reject it."""
    try:
        data = encoded(promotion, Promotion)
        parse_promotion(data, promotion.model)
    except ValueError as error:
        decided = f"the decision on {promotion.model}@{promotion.version}"
        raise InvalidArtifact(f"{decided} cannot be recorded: {error}") from error
    return data


def parse_promotion(data: bytes, place: str) -> Promotion:
    """Return the decision in a file at ``place``.

    Raises ValueError or InvalidReference if it is malformed, UnsupportedSpecVersion if a later release wrote it.
    """
    if len(data) > MAX_BYTES:
        raise ValueError(f"it takes more than {MAX_BYTES} bytes")
    return stored_document(Promotion, decoded(data, dict[str, Any]), place, newest=ROLLBACK_SPEC_VERSION)
