"""A dead letter as a document for users: its failure, and the record that failed."""

from __future__ import annotations

from typing import Any

from wasmline.build.jsonl import plain_bytes
from wasmline.control import RedriveState
from wasmline.dead_letters import record_headers
from wasmline.redrive.dead_letter_reader import StoredDeadLetter


def dead_letter_document(letter: StoredDeadLetter, state: RedriveState) -> dict[str, Any]:
    """Return a dead letter as JSON-able values; bytes that are no text are named as base64."""
    failure = letter.failure
    return {
        "dead_letter": letter.position,
        "timestamp": letter.timestamp,
        "state": "redriven" if letter.is_redriven(state) else "pending",
        "error": failure.error,
        "reason": failure.reason,
        "transform": failure.transform_reference or None,
        "module": failure.digest or None,
        "source": failure.position or None,
        "key": plain_bytes(letter.key),
        "value": plain_bytes(letter.value),
        "headers": [[name, plain_bytes(value)] for name, value in record_headers(letter.headers or [])],
        "truncated_bytes": failure.truncated_bytes,
    }
