"""The plugin of Airflow: a page of transforms, jobs and models in its UI, and the same beside a DAG run and a task.

Airflow imports this in each of its processes: what serves the page is imported by the API server only.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

ICON = {"icon": "wasmline/static/icon.svg", "icon_dark_mode": "wasmline/static/icon_dark.svg"}

URL_PREFIX = "/wasmline"


class WasmlinePlugin(AirflowPlugin):
    """Adds the page ``Wasmline`` to the navigation, and a tab to the pages of DAG runs and of task instances."""

    name = "wasmline"
    external_views = [
        {"name": "Wasmline", "href": "wasmline/page", "destination": "nav", "url_route": "wasmline", **ICON},
        {
            "name": "Wasmline",
            "href": "wasmline/page?dag={DAG_ID}&run={RUN_ID}",
            "destination": "dag_run",
            "url_route": "wasmline-run",
            **ICON,
        },
        {
            "name": "Wasmline",
            "href": "wasmline/page?dag={DAG_ID}&run={RUN_ID}&task={TASK_ID}&map={MAP_INDEX}",
            "destination": "task_instance",
            "url_route": "wasmline-task",
            **ICON,
        },
    ]

    @property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]  # Airflow reads it only
        """The application that serves the page; only the API server reads this."""
        from wasmline_provider.plugin.application import create_application

        return [{"app": create_application(), "url_prefix": URL_PREFIX, "name": "Wasmline"}]
