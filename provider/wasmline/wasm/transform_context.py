"""A guest's view of its deployment: name, topics, environment variables, schemas and clock."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from wasmline.errors import InvalidSpec, LimitExceeded
from wasmline.transform_limits import (
    MAX_OUTPUT_TOPICS,
    MAX_VARIABLE_BYTES,
    MAX_VARIABLE_NAME_BYTES,
    MAX_VARIABLES,
    RESERVED,
)
from wasmline.wasm.registry_schemas import Schema, check_schemas

MAX_NAME_BYTES = 128

Clock = Literal["wasmline", "redpanda"]
"""Rule of the monotonic clock: one microsecond per reading and one millisecond per record, or Redpanda's rule, only one
millisecond per reading. Under the latter a guest of standard Go eventually stops collecting garbage.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformContext:
    """A guest's view of its deployment, within the limits of a Redpanda broker.

    ``schemas`` are the content of the guest's schema registry; if empty, the registry is not enabled.
    Raises LimitExceeded for too many or too long values, InvalidSpec for invalid names.
    """

    name: str
    input_topic: str
    output_topics: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = "wasmline"
    schemas: tuple[Schema, ...] = ()

    def __post_init__(self) -> None:
        _text("the transform's name", self.name, MAX_NAME_BYTES)
        if not 1 <= len(self.output_topics) <= MAX_OUTPUT_TOPICS:
            raise LimitExceeded(
                f"{self.name}: {len(self.output_topics)} output topics; a transform has 1 to {MAX_OUTPUT_TOPICS}"
            )
        for topic in (self.input_topic, *self.output_topics):
            _text(f"{self.name}: a topic", topic, 249)
        if len(set(self.output_topics)) < len(self.output_topics):
            raise InvalidSpec(f"{self.name}: an output topic is named twice")
        if self.input_topic in self.output_topics:
            raise InvalidSpec(
                f"{self.name}: {self.input_topic} is both input and output; the transform would feed itself"
            )
        if self.clock not in get_args(Clock):
            raise InvalidSpec(f"{self.name}: unknown clock {self.clock!r}; choose {' or '.join(get_args(Clock))}")
        self._check_env()
        check_schemas(self.schemas)

    def _check_env(self) -> None:
        if len(self.env) > MAX_VARIABLES:
            raise LimitExceeded(f"{self.name}: {len(self.env)} environment variables; at most {MAX_VARIABLES}")
        for key, value in self.env.items():
            _text(f"{self.name}: an environment variable's name", key, MAX_VARIABLE_NAME_BYTES)
            _text(f"{self.name}: the value of {key}", value, MAX_VARIABLE_BYTES)
            if "=" in key or key.startswith(RESERVED):
                raise InvalidSpec(
                    f"{self.name}: {key} cannot name an environment variable: no '=', and {RESERVED} is reserved"
                )

    def environment(self) -> dict[str, str]:
        """Return the guest's environment variables: the user's, then the topics."""
        topics = {f"{RESERVED}OUTPUT_TOPIC_{index}": topic for index, topic in enumerate(self.output_topics)}
        return {**self.env, f"{RESERVED}INPUT_TOPIC": self.input_topic, **topics}


def _text(what: str, text: str, limit: int) -> None:
    if not 1 <= len(text.encode()) <= limit:
        raise LimitExceeded(f"{what} takes {len(text.encode())} bytes; 1 to {limit} are allowed")
    if any(unicodedata.category(letter) == "Cc" for letter in text):
        raise InvalidSpec(f"{what} contains a control character: {text!r}")
