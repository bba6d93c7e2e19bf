"""Keeps the rows of a state, each until it changes: all readers of the page share them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from wasmline.control import ClusterState
from wasmline.control.cluster_state import Kind

Row = dict[str, Any]


class ChangedRows(NamedTuple):
    """Rows that have changed, and the names of those that are gone."""

    rows: list[Row]
    removed: list[str]


class RowCache:
    """The rows of one state, by kind and name. Used with the lock of the state."""

    def __init__(self) -> None:
        self._identity = ""
        self._rows: dict[tuple[Kind, str], tuple[int, Row]] = {}

    def changed(
        self, identity: str, state: ClusterState, kind: Kind, since: int, make: Callable[[ClusterState, str], Row]
    ) -> ChangedRows:
        """Return what has changed after the number ``since`` of a state; ``make`` makes a row by its name."""
        if identity != self._identity:
            self._identity, self._rows = identity, {}
        found = ChangedRows([], [])
        for name, number in state.changed_since(since, kind).items():
            if name in state.deployments if kind == "transforms" else state.has_job(name):
                found.rows.append(self._row(state, kind, name, number, make))
            else:
                self._rows.pop((kind, name), None)
                found.removed.append(name)
        return found

    def _row(
        self, state: ClusterState, kind: Kind, name: str, number: int, make: Callable[[ClusterState, str], Row]
    ) -> Row:
        known = self._rows.get((kind, name))
        if known is None or known[0] != number:
            known = self._rows[kind, name] = (number, make(state, name))
        return known[1]
