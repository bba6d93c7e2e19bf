"""Names the extra whose library is not installed, and the line that installs it."""

from __future__ import annotations

from wasmline.errors import PrerequisiteMissing

EXTRAS = {
    "airflow": "airflow",
    "matplotlib": "training",
    "pandas": "spark",
    "prometheus_client": "metrics",
    "py4j": "spark",
    "pyarrow": "wasm",
    "pyspark": "spark",
    "wasmtime": "wasm",
    "xgboost": "training",
}
"""The extra of each library that is not installed without one, by its name in Python."""


def missing_extra(error: ModuleNotFoundError) -> PrerequisiteMissing | None:
    """Return the error that says which extra to install, None if the module is of no extra."""
    extra = EXTRAS.get(error.name or "")
    if extra is None:
        return None
    install = f"pip install 'wasmline[{extra}]'"
    return PrerequisiteMissing(f"{error.name} is not installed: {install}", install=install)
