"""The conformance guests: where they are, what is expected of them, and how their JSON Lines show bytes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "wasm_modules" / "guests" / "conformance"
EXPECTED: list[dict[str, Any]] = [json.loads(line) for line in (FOLDER / "expected.jsonl").read_text().splitlines()]


def read_bytes(shown: Any) -> bytes | None:
    """Return the bytes that JSON Lines show as text, or as Base64 where they are no text."""
    if isinstance(shown, dict):
        return base64.b64decode(shown["base64"])
    return None if shown is None else str(shown).encode()
