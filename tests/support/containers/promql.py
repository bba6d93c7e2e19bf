"""Parses the part of PromQL that the dashboard uses, and names each metric with its labels."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_:][\w:]*)|(?P<string>"[^"\\]*")|(?P<range>\[[\w$]+\])"""
    r"""|(?P<symbol>=~|!~|==|!=|>=|<=|[-+*/%^<>=(){},]))"""
)
MATCHES = ("=", "!=", "=~", "!~")
OPERATORS = ("+", "-", "*", "/", "%", "^", "==", "!=", ">", "<", ">=", "<=", "and", "or", "unless")
AGGREGATIONS = ("sum", "min", "max", "avg", "count")
RANGE_FUNCTIONS = ("rate", "increase")
FUNCTIONS = {"time": 0, "rate": 1, "increase": 1}
"""Functions, with the number of their arguments."""


@dataclass(frozen=True)
class Selector:
    """A metric, the labels by which it is matched or grouped, and the function of its range, or ""."""

    metric: str
    labels: frozenset[str]
    function: str


def parse(query: str) -> list[Selector]:
    """Return the selectors of a query. Raises ValueError for anything that this grammar does not have."""
    parser = _Parser(query)
    found = parser.expression()
    parser.end()
    return found


class _Parser:
    def __init__(self, query: str) -> None:
        self._query = query
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while query[at:].strip():
            if (match := TOKEN.match(query, at)) is None:
                raise ValueError(f"{query!r}: {query[at:]!r} is no token")
            self._tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            at = match.end()

    def expression(self) -> list[Selector]:
        found = self._operand()
        while self._next() in OPERATORS:
            self._take()
            found += self._operand()
        return found

    def end(self) -> None:
        if self._tokens:
            raise self._error("an end")

    def _operand(self) -> list[Selector]:
        if self._accept("-"):
            return self._operand()
        if self._accept("("):
            found = self.expression()
            self._expect(")")
            return found
        kind, text = self._take()
        if kind == "number":
            return []
        if kind != "name":
            raise ValueError(f"{self._query!r}: {text!r} is no operand")
        if text in AGGREGATIONS:
            return self._aggregation()
        return self._call(text) if self._next() == "(" else [self._selector(text, "")]

    def _aggregation(self) -> list[Selector]:
        labels = self._labels() if self._accept("by") else []
        self._expect("(")
        found = self.expression()
        self._expect(")")
        labels += self._labels() if self._accept("by") else []
        return [Selector(each.metric, each.labels | set(labels), each.function) for each in found]

    def _call(self, function: str) -> list[Selector]:
        if function not in FUNCTIONS:
            raise ValueError(f"{self._query!r}: {function} is no function that is known here")
        self._expect("(")
        found = []
        if FUNCTIONS[function]:
            kind, metric = self._take()
            if kind != "name":
                raise ValueError(f"{self._query!r}: {function} is of a metric")
            found.append(self._selector(metric, function))
        self._expect(")")
        return found

    def _selector(self, metric: str, function: str) -> Selector:
        labels = self._enclosed("{", "}", self._matcher) if self._next() == "{" else []
        if function in RANGE_FUNCTIONS:
            kind, text = self._take()
            if kind != "range":
                raise ValueError(f"{self._query!r}: {function} is of a range, not of {text!r}")
        return Selector(metric, frozenset(labels), function)

    def _labels(self) -> list[str]:
        return self._enclosed("(", ")", self._name)

    def _enclosed(self, begin: str, end: str, item: Callable[[], str]) -> list[str]:
        self._expect(begin)
        found = [item()]
        while self._accept(","):
            found.append(item())
        self._expect(end)
        return found

    def _matcher(self) -> str:
        label = self._name()
        if self._take()[1] not in MATCHES or self._take()[0] != "string":
            raise ValueError(f"{self._query!r}: {label} is not matched")
        return label

    def _name(self) -> str:
        kind, text = self._take()
        if kind != "name":
            raise ValueError(f"{self._query!r}: {text!r} is no name")
        return text

    def _next(self) -> str:
        return self._tokens[0][1] if self._tokens else ""

    def _take(self) -> tuple[str, str]:
        if not self._tokens:
            raise self._error("more")
        return self._tokens.pop(0)

    def _accept(self, text: str) -> bool:
        if self._next() != text:
            return False
        self._take()
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise self._error(repr(text))

    def _error(self, wanted: str) -> ValueError:
        return ValueError(f"{self._query!r} needs {wanted} before {self._next()!r}")
