"""Identifies the model in a transform: its version, its bytes and the dataset it was trained on."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_VERSION = re.compile(r"[0-9A-Za-z.+-]{1,128}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReference:
    """One model version. ``digest`` is that of the model's bytes, ``dataset`` that of its dataset's manifest.

    Raises ValueError for values that cannot be part of a header or a path.
    """

    name: str
    version: str
    digest: str
    dataset: str

    def __post_init__(self) -> None:
        for text, pattern in (
            (self.name, _NAME),
            (self.version, _VERSION),
            (self.digest, _DIGEST),
            (self.dataset, _DIGEST),
        ):
            if not pattern.fullmatch(text):
                raise ValueError(f"{text[:140]!r} does not identify a model: expected {pattern.pattern}")

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"
