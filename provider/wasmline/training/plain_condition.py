"""Tells conditions that only compare fields from SQL that can call functions: a registry's record may hold any."""

from __future__ import annotations

import re
from collections.abc import Collection

_KEYWORDS = {"and", "or", "not", "in", "between", "is", "null", "like", "true", "false"}
_QUERIES = {"select", "from", "with", "values", "table", "map", "reduce"}
"""Words that begin a query, whatever fields there are."""

_TOKEN = re.compile(
    r"\s+|'[^']*'|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|[<>=!]+|[-+*/%(),]|(?P<name>[A-Za-z_][A-Za-z0-9_]*|`[^`]+`)",
    re.ASCII,
)
_IS_CALL = re.compile(r"\s*\(", re.ASCII)

_ELSEWHERE = ("--", "/*", "\\")
"""Comments and escapes, in which Spark may see the ends of other texts than are seen here."""


def is_plain_condition(condition: str, fields: Collection[str]) -> bool:
    """Return whether a SQL condition has nothing but these fields, constants, comparisons and arithmetic.

    Others may be harmless too, but SQL of Spark can call any method of Java and read any file.
    """
    if any(each in condition for each in _ELSEWHERE):
        return False
    names = {name.lower() for name in fields}
    place = 0
    while place < len(condition):
        token = _TOKEN.match(condition, place)
        if token is None:
            return False
        place = token.end()
        name = token["name"]
        if name and name.lower() not in _KEYWORDS:
            is_field = name.strip("`").lower() in names and name.lower() not in _QUERIES
            if not is_field or _IS_CALL.match(condition, place):
                return False
    return True
