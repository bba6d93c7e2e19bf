"""Kafka → Python function → Kafka by Quix Streams, in an environment of its own.

    quix_app.py BOOTSTRAP GROUP INPUT FEATURES DEAD_LETTERS at_least_once|exactly_once

SIGTERM ends it in order.
"""

from __future__ import annotations

import sys
from typing import Any

from delivery_in_python import transform
from quixstreams import Application  # type: ignore[import-not-found]


class DeadLetter(bytes):
    """The value of a record that violates the contract, as it came."""


def transformed(value: bytes) -> bytes:
    """Return the feature of a raw record, or the record as a dead letter."""
    feature = transform(value)
    return feature if feature is not None else DeadLetter(value)


def main() -> None:
    """Run until SIGTERM."""
    bootstrap, group, *names, delivery = sys.argv[1:]
    app = Application(
        bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee=delivery.replace("_", "-"),
        auto_create_topics=False,
        loglevel="WARNING",
    )
    plain = {f"{of}_{side}": "bytes" for of in ("key", "value") for side in ("serializer", "deserializer")}
    deliveries, features, dead_letters = (app.topic(name, **plain) for name in names)

    def target(value: bytes, *_: Any) -> Any:
        return dead_letters if type(value) is DeadLetter else features

    app.dataframe(deliveries).apply(transformed).to_topic(target)
    app.run()


if __name__ == "__main__":
    main()
