"""The events of a task's outlets, in place of Airflow's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class OutletEvents(dict[str, Any]):
    """Events by the URIs of their assets; as Airflow's, it is asked for assets."""

    def __getitem__(self, asset: Any) -> Any:
        return self.setdefault(asset.uri, SimpleNamespace(extra={}))
