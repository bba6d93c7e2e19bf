"""Bounds of a transform: the engine applies them, and the registry keeps no module and no declaration beyond them."""

from __future__ import annotations

from typing import Final

MAX_MODULE_BYTES: Final = 64 * 2**20

MIN_MEMORY_BYTES: Final = 65536
"""One page of WebAssembly."""

MAX_MEMORY_BYTES: Final = 2**32
"""What 32-bit pointers reach."""

MAX_CPU_MS_PER_RECORD: Final = 24 * 3600 * 1000
MAX_OUTPUT_TOPICS: Final = 8
MAX_VARIABLES: Final = 128
MAX_VARIABLE_NAME_BYTES: Final = 128
MAX_VARIABLE_BYTES: Final = 2048
"""Of the value of an environment variable."""

RESERVED: Final = "REDPANDA_"
"""How the names of the host's own environment variables begin."""
