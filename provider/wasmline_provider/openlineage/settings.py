"""Reads whether Airflow sends events to OpenLineage."""

from __future__ import annotations

import sys

LISTENER = "airflow.providers.openlineage.plugins.listener"
"""Airflow's plugin loads it where a transport is configured, and only there."""


def sends_lineage() -> bool:
    """Return whether this process sends events."""
    return LISTENER in sys.modules
