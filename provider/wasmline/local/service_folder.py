"""Files in a service's folder: replaced atomically, and ignored by git."""

from __future__ import annotations

from pathlib import Path


def own_folder(folder: Path) -> None:
    """Create ``folder`` if missing, and make git ignore its content."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")


def write(path: Path, text: str, *, private: bool = False) -> None:
    """Replace the file at ``path`` atomically; a ``private`` one is readable only by this user."""
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600 if private else 0o666)
    draft.write_text(text)
    draft.replace(path)
