"""Looks a module up in the registry, with the provenance of its build (in-toto, slsa.dev/provenance/v1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from wasmline.errors import RegistryError
from wasmline.lineage.explanation import ModuleOrigin
from wasmline.registry import FilesystemRegistry


class _Parameters(msgspec.Struct, frozen=True):
    language: str | None = None
    sources: tuple[str, ...] = ()


class _Dependency(msgspec.Struct, frozen=True):
    name: str
    digest: dict[str, str] = {}
    annotations: dict[str, Any] = {}


class _Definition(msgspec.Struct, frozen=True, rename="camel"):
    external_parameters: _Parameters = _Parameters()
    resolved_dependencies: tuple[_Dependency, ...] = ()


class _Predicate(msgspec.Struct, frozen=True, rename="camel"):
    build_definition: _Definition = _Definition()


class _Statement(msgspec.Struct, frozen=True):
    subject: tuple[_Dependency, ...]
    predicate: _Predicate


def module_origin(registry: FilesystemRegistry, name: str, version: str, recorded: str) -> ModuleOrigin:
    """Return a module that a record names, as far as the registry knows it.

    ``recorded`` is its digest in the record, or the first digits.
    """
    origin = ModuleOrigin(name=name, version=version, recorded_digest=recorded)
    try:
        published = registry.get(name, version)
        statement = registry.provenance(name, version)
    except RegistryError as error:
        return replace(origin, problems=(str(error),))
    problems = digest_problems("module", recorded, published.digest, f"{published} in {registry.url}")
    origin = replace(origin, digest=published.digest, commit=published.metadata.revision, problems=problems)
    if statement is None:
        return replace(origin, problems=(*problems, f"{published} was published without the provenance of its build"))
    try:
        found = msgspec.convert(statement, _Statement)
    except msgspec.ValidationError as error:
        return replace(origin, problems=(*problems, f"the provenance of {published} cannot be read: {error}"))
    return _with_build(origin, found)


def digest_problems(what: str, recorded: str, found: str, place: str) -> tuple[str, ...]:
    """Return the sentence about a digest that differs; none if ``recorded`` has the first digits of ``found``."""
    digits = recorded.removeprefix("sha256:")
    if digits and found.removeprefix("sha256:").startswith(digits):
        return ()
    return (f"the record names the {what} {recorded or 'by no digest'}, but {place} is {found}",)


def _with_build(origin: ModuleOrigin, statement: _Statement) -> ModuleOrigin:
    build = statement.predicate.build_definition
    named = {each.name: each for each in build.resolved_dependencies}
    sources, git = named.pop("sources", None), named.pop("git", None)
    problems = origin.problems
    digests = {f"sha256:{each.digest.get('sha256')}" for each in statement.subject}
    if origin.digest not in digests:
        problems += (f"the provenance of {origin.name}@{origin.version} is about another module",)
    return replace(
        origin,
        language=build.external_parameters.language,
        toolchain=", ".join(name for name, each in named.items() if not each.digest) or None,
        commit=str(git.annotations.get("revision")) if git is not None else origin.commit,
        sources=build.external_parameters.sources,
        source_digest=f"sha256:{sources.digest.get('sha256')}" if sources is not None else None,
        problems=problems,
    )
