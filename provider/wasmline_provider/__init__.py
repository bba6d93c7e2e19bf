"""Wasmline for Airflow: operators, hooks and triggers over the engine, which knows nothing of Airflow."""

from wasmline import __version__

__all__ = ["__version__"]
