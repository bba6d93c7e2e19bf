"""The Dockerfile's instructions, stage by stage."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from support.containers.compose_file import FOLDER

FILE = FOLDER / "Dockerfile"
IGNORE_FILE = FOLDER / "Dockerfile.dockerignore"


@dataclass
class Stage:
    """A stage with the instructions of those that it is built from, each a name and its text."""

    image: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def arguments(self, name: str) -> list[str]:
        """Return the texts of the instructions of one name, in order."""
        return [text for each, text in self.instructions if each == name]

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the image."""
        return dict(pair.split("=", 1) for text in self.arguments("ENV") for pair in shlex.split(text))

    @property
    def installs(self) -> list[list[str]]:
        """The arguments of each ``uv pip install``, without options."""
        found = (shlex.split(text) for text in self.arguments("RUN") if text.startswith("uv pip install"))
        return [_requirements(each[3:]) for each in found]


def read_stages() -> dict[str, Stage]:
    """Return the stages by name."""
    text = re.sub(r"^\s*#.*\n", "", FILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    stages: dict[str, Stage] = {}
    current = Stage("")
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, argument = line.partition(" ")
        if name == "FROM":
            base, _, stage = argument.partition(" AS ")
            earlier = stages.get(base)
            current = Stage(earlier.image if earlier else base, list(earlier.instructions) if earlier else [])
            stages[stage] = current
        else:
            current.instructions.append((name, argument.strip()))
    return stages


def _requirements(arguments: list[str]) -> list[str]:
    """Return what is installed; ``--constraints`` is the only option with a value."""
    without = [each for at, each in enumerate(arguments) if at == 0 or arguments[at - 1] != "--constraints"]
    return [each for each in without if not each.startswith("--")]
