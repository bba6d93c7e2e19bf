"""Wasmline's engine: builds, versions, deploys and runs WebAssembly transforms on Kafka."""

from wasmline import renames

__version__ = "0.1.0"

renames.install()
