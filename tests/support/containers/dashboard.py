"""The queries of the Grafana dashboard."""

from __future__ import annotations

import json
from typing import Any

from support.containers.compose_file import FOLDER

FILE = FOLDER / "grafana" / "dashboards" / "wasmline.json"


def read_dashboard() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text()))


def queries() -> list[str]:
    """Return each query of each panel, in order."""
    panels = read_dashboard()["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]
