"""Semantic versions (semver.org 2.0.0) as the registry uses them: without build metadata."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

from wasmline.errors import InvalidReference

MAX_LENGTH = 128
"""Maximum length of a version as text, as of an OCI tag."""

_NUMBER = r"(0|[1-9]\d*)"
_IDENTIFIER = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Semver:
    """One version, ordered by ``precedence``; ``prerelease`` holds the identifiers after the hyphen."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Semver:
        """Return the version in ``text``.

        Build metadata (``+…``) is rejected: it does not count for precedence and cannot be part of an OCI tag. Raises
        InvalidReference.
        """
        match = _SEMVER.fullmatch(text) if len(text) <= MAX_LENGTH else None
        if match is None:
            raise InvalidReference(
                f"{text[:MAX_LENGTH]!r} is not a semantic version such as 1.0.0 or 2.0.0-rc.1 (build metadata is not "
                f"allowed, nor are more than {MAX_LENGTH} characters)",
                reference=text,
            )
        major, minor, patch, prerelease = match.groups()
        identifiers = tuple(prerelease.split(".")) if prerelease else ()
        return cls(major=int(major), minor=int(minor), patch=int(patch), prerelease=identifiers)

    @property
    def precedence(self) -> tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]]:
        """The sort key of rule 11: numbers by value, before words; a release after its pre-releases."""
        identifiers = tuple(
            (False, int(identifier), "") if identifier.isdigit() else (True, 0, identifier)
            for identifier in self.prerelease
        )
        return self.major, self.minor, self.patch, not self.prerelease, identifiers

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        return f"{text}-{'.'.join(self.prerelease)}" if self.prerelease else text


def by_precedence(texts: list[str]) -> list[str]:
    """Return the versions among ``texts``, in ascending precedence."""
    versions = []
    for text in texts:
        with suppress(InvalidReference):
            versions.append((Semver.parse(text).precedence, text))
    return [text for _, text in sorted(versions)]


def newest(texts: list[str]) -> str | None:
    """Return the highest release, or the highest pre-release if there is no release, or None if empty."""
    ordered = by_precedence(texts)
    releases = [text for text in ordered if not Semver.parse(text).prerelease]
    candidates = releases or ordered
    return candidates[-1] if candidates else None
