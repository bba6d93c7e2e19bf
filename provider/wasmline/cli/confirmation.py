"""Asks before a command changes something, and names its user."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from wasmline.control import ChangeCause


def require_confirmed(question: str) -> None:
    """Ask at the terminal; abort without a yes. Raises UsageError where there is no terminal."""
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask at: add --yes")
    click.confirm(question, err=True, abort=True)


def confirm_at_terminal(question: str) -> None:
    """Ask at the terminal; abort without a yes. Where there is no terminal, nobody is asked."""
    if sys.stdin.isatty():
        click.confirm(question, err=True, abort=True)


def change_cause(reason: str) -> ChangeCause:
    """Return the cause of a change by the user of this process. Raises InvalidSpec for a reason that is too long."""
    from wasmline.control import ChangeCause

    return ChangeCause(reason=reason, by=user_name())


def user_name() -> str:
    """Return the user of this process as the system knows it; the environment could name any."""
    import pwd

    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's user without an entry
        return f"uid {uid}"
