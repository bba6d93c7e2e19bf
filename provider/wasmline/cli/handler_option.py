"""A handler that the command line names: ``module:function``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from wasmline.consumer import PerThread
from wasmline.consumer.handlers import Handler
from wasmline.errors import InvalidConsumerOption
from wasmline.pipeline import handler_loader


def load_handler(reference: str) -> Handler | PerThread:
    """Return what ``module:name`` names; the module is looked for in the current folder first.

    Raises click.BadParameter where there is no such module or name, or where it is nothing to call.
    """
    sys.path.insert(0, str(Path.cwd()))
    try:
        return handler_loader.load_handler(reference)
    except InvalidConsumerOption as error:
        raise click.BadParameter(str(error), param_hint="--handler") from error
