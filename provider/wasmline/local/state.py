"""Files in a service's folder: replaced as a whole, so that a reader sees the old or the new one; git ignores them."""

from __future__ import annotations

from pathlib import Path


def own_folder(folder: Path) -> None:
    """Make ``folder`` if it is not there, and have git ignore all that is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")


def write(path: Path, text: str, *, private: bool = False) -> None:
    """Replace the file at ``path`` as a whole; a ``private`` one can be read by nobody else on this machine."""
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600 if private else 0o666)
    draft.write_text(text)
    draft.replace(path)
