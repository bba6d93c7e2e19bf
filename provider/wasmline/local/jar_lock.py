"""Lock files beside this module: sets of jars, each with its required digest."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

LINE = re.compile(r"(?P<organisation>[\w.-]+):(?P<module>[\w.-]+):(?P<revision>[\w.-]+)\s+(?P<sha256>[0-9a-f]{64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One jar by its Maven coordinate, with the SHA-256 of its bytes."""

    organisation: str
    module: str
    revision: str
    sha256: str

    @property
    def coordinate(self) -> str:
        return f"{self.organisation}:{self.module}:{self.revision}"

    @property
    def file(self) -> str:
        return f"{self.module}-{self.revision}.jar"

    def matches(self, path: Path) -> bool:
        """Return whether ``path`` exists and has exactly the locked bytes."""
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == self.sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """The jars of one lock file. ``digest`` changes with the file, so that two releases never share a folder."""

    name: str
    digest: str
    jars: tuple[Jar, ...]


def read(path: Path) -> JarSet:
    """Return the jar set of the lock file at ``path``; ``#`` starts a comment line."""
    text = path.read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    matches = [LINE.fullmatch(line) for line in lines]
    if not all(matches):
        raise ValueError(f"{path}: each line is organisation:module:revision and a SHA-256")
    jars = tuple(Jar(**match.groupdict()) for match in matches if match)
    return JarSet(name=path.stem, digest=hashlib.sha256(text.encode()).hexdigest(), jars=jars)
