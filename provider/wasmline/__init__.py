"""Wasmline's engine: build, version, deploy and run WebAssembly transforms on Kafka. It knows none of its callers."""

from wasmline import renames

__version__ = "0.1.0"

renames.install()
