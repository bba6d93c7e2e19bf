"""Hooks of MkDocs: files outside of docs/ to which a page links, such as DAGs, are pages of the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

FOLDER = "repository"
"""The folder of the site for files outside of docs/."""

LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")

CODE = re.compile(r"`[^`\n]+`")

LANGUAGES = {".py": "python", ".cc": "cpp", ".hpp": "cpp", ".yaml": "yaml"}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file outside of docs/ to which a page links, and for those to which an added page links."""
    docs = Path(config.docs_dir)
    waiting = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    added: set[Path] = set()
    while waiting:
        page = waiting.pop()
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            found = (page.parent / target).resolve()
            if found in added or found.is_relative_to(docs) or not found.is_file():
                continue
            added.add(found)
            place = _place(found, docs)
            files.append(
                File.generated(config, place, content=_content(found, docs), inclusion=InclusionLevel.NOT_IN_NAV)
            )
            if found.suffix == ".md":
                waiting.append(found)
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Return a page whose links lead to the site's pages, and whose tables have no escapes inside of code."""
    docs = Path(config.docs_dir)
    place = page.file.src_uri
    outside = place.removeprefix(f"{FOLDER}/")
    source = docs / place if outside == place else docs.parent / outside

    def site_link(match: re.Match[str]) -> str:
        found = (source.parent / match[1]).resolve()
        if found.is_dir():
            found /= "README.md"
        return posixpath.relpath(_place(found, docs), posixpath.dirname(place) or ".") if found.is_file() else match[1]

    lines = LINK.sub(site_link, markdown).split("\n")
    return "\n".join(CODE.sub(_unescaped, line) if line.startswith("|") else line for line in lines)


def _place(path: Path, docs: Path) -> str:
    """Return the path of a file's page, relative to the pages' root."""
    if path.is_relative_to(docs):
        return path.relative_to(docs).as_posix()
    name = path.relative_to(docs.parent).as_posix()
    return f"{FOLDER}/{name}" if path.suffix == ".md" else f"{FOLDER}/{name}.md"


def _content(path: Path, docs: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    return f"# {path.relative_to(docs.parent).as_posix()}\n\n`````{LANGUAGES.get(path.suffix, 'text')}\n{text}`````\n"


def _unescaped(code: re.Match[str]) -> str:
    return code[0].replace("\\|", "|")
