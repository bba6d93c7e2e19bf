"""Attaches metadata to the events of changed assets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

if TYPE_CHECKING:
    from airflow.sdk import Context


def record(context: Context, outlets: Iterable[Any], facts: Mapping[str, Any]) -> None:
    """Attach ``facts`` to the event of each asset among ``outlets``, for the DAGs that they trigger."""
    for outlet in outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra = dict(facts)
