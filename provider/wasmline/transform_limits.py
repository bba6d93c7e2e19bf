"""Limits of a transform: the engine applies them, and the registry rejects modules and declarations beyond them."""

from __future__ import annotations

from typing import Final

MAX_MODULE_BYTES: Final = 64 * 2**20

MIN_MEMORY_BYTES: Final = 65536
"""One page of WebAssembly."""

MAX_MEMORY_BYTES: Final = 2**32
"""The address space of 32-bit pointers."""

MAX_CPU_MS_PER_RECORD: Final = 24 * 3600 * 1000
MAX_OUTPUT_TOPICS: Final = 8
MAX_VARIABLES: Final = 128
MAX_VARIABLE_NAME_BYTES: Final = 128
MAX_VARIABLE_BYTES: Final = 2048
"""Maximum size of the value of an environment variable."""

RESERVED: Final = "REDPANDA_"
"""Prefix of the names of the host's own environment variables."""
