"""``--schema ID[:SUBJECT[:VERSION]]=[FORMAT:]FILE``: one schema of a guest's schema registry."""

from __future__ import annotations

import re
from pathlib import Path

import click

from wasmline.errors import DeployError
from wasmline.wasm import Schema
from wasmline.wasm.registry_schemas import FORMATS, Format

EXTENSIONS: dict[str, Format] = {".avsc": "avro", ".proto": "protobuf", ".json": "json"}

_NAME = re.compile(r"(?P<id>\d+)(?::(?P<subject>(?::(?=\.))?[^:]+(?::[^:]+)*?)(?::(?P<version>\d+))?)?", re.ASCII)


class SchemaFile(click.ParamType[Schema]):
    """A schema whose definition is a file's text.

    A subject may contain single colons, and begin with ``:.`` like subjects of a context; a number after the last
    colon is its version.
    """

    name = "schema"

    def convert(self, value: str | Schema, param: click.Parameter | None, ctx: click.Context | None) -> Schema:
        if isinstance(value, Schema):
            return value
        name, equals, place = value.partition("=")
        match = _NAME.fullmatch(name)
        if not match or not equals or not place:
            self.fail(f"{value!r} is not ID=FILE, ID:SUBJECT=FILE or ID:SUBJECT:VERSION=FILE", param, ctx)
        try:
            kind, path = _format(place)
            return Schema(
                id=int(match["id"]),
                definition=path.read_bytes().decode(),
                format=kind,
                subject=match["subject"],
                version=int(match["version"] or 1),
            )
        except OSError as error:
            self.fail(f"{place} cannot be read: {error.strerror}", param, ctx)
        except UnicodeDecodeError:
            self.fail(f"{place} is not UTF-8 text", param, ctx)
        except (DeployError, ValueError) as error:
            self.fail(str(error), param, ctx)


def _format(place: str) -> tuple[Format, Path]:
    """Return the format, from the prefix or the file's extension, and the file."""
    prefix, colon, rest = place.partition(":")
    for kind in FORMATS:
        if colon and prefix == kind:
            return kind, Path(rest)
    path = Path(place)
    if path.suffix not in EXTENSIONS:
        known = ", ".join(EXTENSIONS)
        raise ValueError(f"{place} has none of the extensions {known}: add the format, such as avro:{place}")
    return EXTENSIONS[path.suffix], path
