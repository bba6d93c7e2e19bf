"""Reads the headers of a client's messages, whatever bytes their names have."""

from __future__ import annotations

import ctypes
import logging
import operator
from collections.abc import Sequence
from typing import Any

logger = logging.getLogger(__name__)

HEADERS_OF = operator.methodcaller("headers")
"""Calls ``headers`` by way of C, which checks for an error. A call that Python has specialized does not: the exception
then came up at the next call."""


def headers_of(message: Any) -> Sequence[tuple[str, bytes | None]]:
    """Return the headers of a record; ``\ufffd`` stands for invalid UTF-8 in a name, or for a name.

    For an invalid one, confluent-kafka 2.16.1 fails, and keeps a list of pairs with nothing in the name's place.
    """
    try:
        return HEADERS_OF(message) or ()
    except (SystemError, UnicodeDecodeError) as error:
        cause = error.__cause__ or error
    where = (message.topic(), message.partition(), message.offset())
    logger.warning("%s-%d@%d has a header whose name is not UTF-8", *where)
    pairs = HEADERS_OF(message)
    item = ctypes.pythonapi.PyTuple_GetItem
    item.restype, item.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_ssize_t]
    named = [item(pair, 0) is not None for pair in pairs]
    name = "\ufffd"
    if named.count(False) == 1 and isinstance(cause, UnicodeDecodeError):
        name = cause.object.decode(errors="replace")
    return [(pair[0] if has_name else name, pair[1]) for pair, has_name in zip(pairs, named, strict=True)]
