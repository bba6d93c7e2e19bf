"""The bytes of an output, as confluent-kafka serializes a handler's values."""

from __future__ import annotations

from typing import Any

from wasmline.consumer.records import Output, require_record
from wasmline.errors import OutputRefused


def serialized(output: Output) -> Output:
    """Return an output as the broker gets it. Raises OutputRefused for values that the client does not accept."""
    require_record(output)
    try:
        headers = [(_name(name), _bytes(value)) for name, value in output.headers]
        return output._replace(key=_bytes(output.key), value=_bytes(output.value), headers=headers)
    except (TypeError, ValueError) as error:
        text = f"the handler's output cannot be a record of {output.topic}: {error}"
        raise OutputRefused(text) from error


def _bytes(data: Any) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode()
    raise TypeError(f"{type(data).__name__} is neither bytes nor text")


def _name(name: Any) -> str:
    text = str(name)
    text.encode()
    return text
