"""Wasmline for Airflow: operators, hooks and triggers over the engine, which does not depend on Airflow."""

from wasmline import __version__

__all__ = ["__version__"]
