"""A handler by its name: ``module:function``."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache, reduce
from pathlib import Path

from wasmline.consumer import PerThread
from wasmline.consumer.handlers import Handler
from wasmline.errors import InvalidConsumerOption


@cache
def load_handler(reference: str) -> Handler | PerThread:
    """Return what ``module:name`` names, one instance of it in this process where that is a class.

    What the module raises when it is imported is not caught. Raises InvalidConsumerOption where there is no such module
    or name, or where it is nothing to call.
    """
    name, _, path = reference.partition(":")
    if not name or not path or name.startswith("."):
        raise _refused(f"{reference!r} is not MODULE:FUNCTION, such as shop:charge")
    if not _exists(name):
        raise _refused(f"there is no module {name!r} in {Path.cwd()} or among those that are installed")
    module = importlib.import_module(name)
    try:
        found = reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise _refused(f"{module.__file__}: {error}") from error
    handler: Handler | PerThread = found() if isinstance(found, type) else found
    if not callable(handler) and not isinstance(handler, PerThread):
        raise _refused(f"{reference} is a {type(handler).__name__}: a handler is a function of a record")
    return handler


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            return False
        raise


def _refused(text: str) -> InvalidConsumerOption:
    return InvalidConsumerOption(text, option="handler")
