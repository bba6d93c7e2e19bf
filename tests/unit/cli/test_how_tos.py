"""The commands of the how-tos are commands of today, with options of today."""

import re
import shlex
from pathlib import Path

import click
import pytest

import wasmline
from wasmline.cli import main

PAGES = sorted((Path(wasmline.__file__).parents[2] / "docs" / "how-to").glob("*.md"))
LINES = [line for page in PAGES for line in re.findall(r"^ *\$ wasmline (.+)$", page.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("line", LINES)
def test_a_command_of_a_how_to_is_there_with_its_options(line: str) -> None:
    words = shlex.split(line)
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found, line
        command = found
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known
