"""Loads a handler by its name, ``module:function``."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache, reduce
from pathlib import Path

from wasmline.consumer import HandlerFactory
from wasmline.consumer.handler_adapters import Handler
from wasmline.errors import InvalidConsumerOption


@cache
def load_handler(reference: str) -> Handler | HandlerFactory:
    """Return the object named ``module:name``; for a class, one instance of it per process.

    Errors that the module raises on import are not caught. Raises InvalidConsumerOption if there is no such module or
    name, or if it is not callable.
    """
    name, _, path = reference.partition(":")
    if not name or not path or name.startswith("."):
        raise _invalid(f"{reference!r} is not MODULE:FUNCTION, such as shop:charge")
    if not _exists(name):
        raise _invalid(f"no module {name!r} in {Path.cwd()} or among the installed ones")
    module = importlib.import_module(name)
    try:
        found = reduce(getattr, path.split("."), module)
    except AttributeError as error:
        raise _invalid(f"{module.__file__}: {error}") from error
    handler: Handler | HandlerFactory = found() if isinstance(found, type) else found
    if not callable(handler) and not isinstance(handler, HandlerFactory):
        raise _invalid(f"{reference} is a {type(handler).__name__}: a handler must be a function of a record")
    return handler


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            return False
        raise


def _invalid(text: str) -> InvalidConsumerOption:
    return InvalidConsumerOption(text, option="handler")
