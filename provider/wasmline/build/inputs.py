"""The files that a compiler reads, by names that do not depend on where their folders lie."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

from wasmline.build.project import TransformProject
from wasmline.errors import BuildFailed
from wasmline.sequence_digest import sequence_digest

PROJECT = "."
"""The project's own folder, among the places of inputs."""


def input_names(
    project: TransformProject, files: Iterable[Path], places: Mapping[str, Path], *, excluded: Sequence[Path] = ()
) -> dict[str, Path]:
    """Return files by the name of their place and their path in it; the paths are relative to the project's folder.

    Left out are those in ``excluded`` folders: the compiler's version or a lock file stands for their content, but not
    for a project's link to them. Raises BuildFailed for a file that lies anywhere else, or that a link leads to, and
    for one that is not regular: a project reads what is its own.
    """
    roots = {name: Path(os.path.realpath(folder)) for name, folder in places.items()}
    fixed = [base for folder in excluded for base in (folder, Path(os.path.realpath(folder)))]
    inputs = {}
    for file in files:
        if ".." not in file.parts and any(file.is_relative_to(folder) for folder in fixed):
            continue
        real = Path(os.path.realpath(project.folder / file))
        name = next((name for name, root in roots.items() if real.is_relative_to(root)), None)
        if name is None or "\ufffd" in str(file):  # of a compiler's list, decoded: it may stand for any byte
            raise _outside(project, file, real, linked=name is None)
        if not real.is_file():  # to read a FIFO would wait for a writer
            raise BuildFailed(f"{project.name} reads {real}, which is not a regular file", log="")
        bases = (places[name], roots[name])
        path = next((file.relative_to(base) for base in bases if file.is_relative_to(base)), file)
        inputs[f"{name}/{(real.relative_to(roots[name]) if path.is_absolute() else path).as_posix()}"] = real
    return inputs


def _outside(project: TransformProject, file: Path, real: Path, *, linked: bool) -> BuildFailed:
    path = Path(os.path.normpath(project.folder / file))
    if linked and path.is_relative_to(project.folder):
        return BuildFailed(
            f"{project.name}: {path.relative_to(project.folder)} is a link to {real}, outside the project: copy the "
            "file into the project",
            log="",
        )
    return BuildFailed(
        f"{project.name} reads {real}, which is outside of the project's folder: put what it needs there",
        log="" if file == real else f"{file} is {real}",
    )


def digest(inputs: Mapping[str, Path], facts: Sequence[str]) -> str:
    """Return the digest of files by their names, and of ``facts`` such as a compiler's flags.

    Neither where the files are nor when they changed counts.
    """
    files = ((os.fsencode(name), inputs[name].read_bytes()) for name in sorted(inputs))
    parts = chain((len(facts).to_bytes(8, "big"),), map(os.fsencode, facts), chain.from_iterable(files))
    return f"sha256:{sequence_digest(parts)}"
