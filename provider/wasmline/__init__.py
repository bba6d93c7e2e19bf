"""Wasmline's engine: build, version, deploy and run WebAssembly transforms on Kafka. It knows none of its callers."""

__version__ = "0.1.0"
