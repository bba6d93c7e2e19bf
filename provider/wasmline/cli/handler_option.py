"""Loads the handler of a command-line option, ``module:function``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from wasmline.consumer import HandlerFactory
from wasmline.consumer.handler_adapters import Handler
from wasmline.errors import InvalidConsumerOption
from wasmline.pipeline import handler_loader


def load_handler(reference: str) -> Handler | HandlerFactory:
    """Return the object named ``module:name``; the current folder is searched first.

    Raises click.BadParameter if there is no such module or name, or if it is not callable.
    """
    sys.path.insert(0, str(Path.cwd()))
    try:
        return handler_loader.load_handler(reference)
    except InvalidConsumerOption as error:
        raise click.BadParameter(str(error), param_hint="--handler") from error
