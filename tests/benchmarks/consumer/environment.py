"""Environments of their own for rivals in Python: their dependencies are not ours, nor is their Python."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from wasmline.local import jars

LOCK = Path(__file__).parent / "pyrallel.lock"
VERSIONS = ("3.12", "3.13", "3.14")


class NoPython(Exception):
    """There is no Python that the rival runs on; the text is the reason to print."""


def interpreter() -> Path:
    """Return the Python of pyrallel-consumer's environment. Raises NoPython."""
    python = next(_pythons(), None)
    if python is None:
        versions = ", ".join(VERSIONS)
        raise NoPython(f"pyrallel-consumer is left out: it needs Python {versions}, on the PATH or from pyenv")
    return installed(LOCK, python)


def installed(lock: Path, python: Path) -> Path:
    """Return the Python of a lock's environment, which ``python`` makes in the cache folder, once per lock."""
    folder = jars.jar_cache().parent / lock.stem / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix="incoming-") as name:
            made = Path(name) / "venv"
            subprocess.run([python, "-m", "venv", made], check=True)
            install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r"]
            subprocess.run([made / "bin" / "python", *install, lock], check=True)
            made.rename(folder)
    return folder / "bin" / "python"


def _pythons() -> Iterator[Path]:
    """Yield the newer Pythons that run; pyenv has shims of those that do not."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in VERSIONS:
        on_path = shutil.which(f"python{version}")
        found = [Path(on_path)] if on_path else []
        yield from filter(_runs, [*found, *sorted(pyenv.glob(f"{version}.*/bin/python"))])


def _runs(python: Path) -> bool:
    with suppress(OSError):
        return subprocess.run([python, "-c", "import venv"], capture_output=True).returncode == 0
    return False
