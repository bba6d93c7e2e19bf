"""Names the extra whose library is not installed, and the line that installs it."""

from __future__ import annotations

from traceback import walk_tb

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

PACKAGES = ("wasmline", "wasmline_provider")

IMPORTERS = frozenset({"importlib", "_frozen_importlib", "_frozen_importlib_external", *EXTRAS})
"""Packages that import for others: the import system, and the libraries of extras."""


def missing_extra(error: ModuleNotFoundError) -> PrerequisiteMissing | None:
    """Return the error that says which extra to install.

    None if the module is of no extra, or was imported by other code than this project's, such as a user's handler.
    """
    extra = EXTRAS.get(error.name or "")
    if extra is None or _importer(error) not in PACKAGES:
        return None
    install = f"pip install 'wasmline[{extra}]'"
    return PrerequisiteMissing(f"{error.name} is not installed: {install}", install=install)


def _importer(error: ModuleNotFoundError) -> str:
    """Return the package whose code imported the missing module, itself or by way of IMPORTERS; "" if unknown."""
    modules = [str(frame.f_globals.get("__name__", "")) for frame, _ in walk_tb(error.__traceback__)]
    packages = (module.partition(".")[0] for module in reversed(modules))
    return next((package for package in packages if package not in IMPORTERS), "")
