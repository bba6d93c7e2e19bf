"""A YAML mapping whose errors name the line."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path

import yaml
from yaml.error import MarkedYAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from wasmline.build.bounded_read import read_project_file
from wasmline.errors import InvalidProject
from wasmline.printable import bounded_line

MAX_FILE_BYTES = 1 << 17
"""A larger file is rejected: the parser may take twenty seconds for each megabyte."""

_NULL = "tag:yaml.org,2002:null"
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


class YamlMap:
    """One mapping of a file. Scalars are unchanged text: ``1.10`` is the text ``1.10``.

    Every method raises InvalidProject, with path and line.
    """

    def __init__(self, path: Path, node: Node, known: Collection[str] | None) -> None:
        self._path = path
        self._node = node
        if not isinstance(node, MappingNode):
            raise self.error("expected keys with values, such as `name: my-transform`")
        self._keys: dict[str, ScalarNode] = {}
        self._values: dict[str, Node] = {}
        for key, value in node.value:
            self._add(key, value, known)

    @classmethod
    def load(cls, path: Path, known: Collection[str]) -> YamlMap:
        """Return the mapping in a file; keys other than ``known`` are rejected."""
        text = ""
        try:
            text = read_project_file(path, MAX_FILE_BYTES).decode()
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except FileNotFoundError as error:
            raise InvalidProject(
                f"{path} does not exist: is {path.parent} a transform project? `wasmline init` makes one",
                path=str(path),
                line=None,
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidProject(f"{path} cannot be read: {error}", path=str(path), line=None) from error
        except yaml.YAMLError as error:
            line, problem = _problem(error, text)
            raise InvalidProject(
                f"{path}:{line}: not YAML: {bounded_line(problem)}", path=str(path), line=line
            ) from error
        except (ValueError, OverflowError) as error:  # an escape, or the version of YAML, is out of range
            raise InvalidProject(f"{path}: not YAML: {bounded_line(error)}", path=str(path), line=None) from error
        except RecursionError as error:
            raise InvalidProject(f"{path}: nested too deeply to be read", path=str(path), line=None) from error
        if node is None:
            raise InvalidProject(f"{path} is empty", path=str(path), line=1)
        return cls(path, node, known)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def text(self, key: str) -> str | None:
        """Return a scalar unchanged; None if the key is absent."""
        node = self._values.get(key)
        return None if node is None else self._scalar(key, node)

    def required(self, key: str) -> str:
        """Return a required scalar."""
        text = self.text(key)
        if text is None:
            raise self.error(f"`{key}` is missing")
        return text

    def integer(self, key: str) -> int | None:
        """Return a whole number."""
        text = self.text(key)
        try:
            return None if text is None else int(text)
        except ValueError as error:
            raise self.error(f"`{key}` is {text!r}, not a whole number", key) from error

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of scalars."""
        node = self._values.get(key)
        if node is None:
            return None
        if not isinstance(node, SequenceNode):
            raise self.error(f"`{key}` must be a list: one `- item` per line", key)
        return tuple(self._scalar(key, item) for item in node.value)

    def map(self, key: str, known: Collection[str] | None = None) -> YamlMap | None:
        """Return a mapping inside this one."""
        node = self._values.get(key)
        return None if node is None else YamlMap(self._path, node, known)

    def error(self, problem: str, key: str | None = None) -> InvalidProject:
        """Return the error about a key, or about the mapping as a whole."""
        node = self._keys.get(key, self._node) if key else self._node
        return self._error_at(node, problem)

    def _add(self, key: Node, value: Node, known: Collection[str] | None) -> None:
        if not isinstance(key, ScalarNode):
            raise self._error_at(key, "a key must be plain text")
        self._check_letters(key)
        if key.value in self._keys:
            raise self._error_at(key, f"`{key.value}` is given twice, first in line {_line(self._keys[key.value])}")
        if known is not None and key.value not in known:
            close = get_close_matches(key.value.replace("_", "-"), known, n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(sorted(known))}"
            raise self._error_at(key, f"unknown key `{key.value}`; {hint}")
        self._keys[key.value] = key
        self._values[key.value] = value

    def _scalar(self, key: str, node: Node) -> str:
        if not isinstance(node, ScalarNode) or node.tag == _NULL:
            raise self._error_at(node, f"`{key}` needs a plain value")
        self._check_letters(node)
        text: str = node.value
        return text

    def _check_letters(self, node: ScalarNode) -> None:
        """Reject characters of escapes that neither a path nor UTF-8 can contain."""
        if found := _NO_TEXT.search(node.value):
            raise self._error_at(node, f"it contains U+{ord(found[0]):04X}, which is not text: remove it")

    def _error_at(self, node: Node, problem: str) -> InvalidProject:
        return InvalidProject(
            f"{self._path}:{_line(node)}: {bounded_line(problem)}", path=str(self._path), line=_line(node)
        )


def _problem(error: yaml.YAMLError, text: str) -> tuple[int, str]:
    """Return the line and the problem of a parse error, as one line."""
    if isinstance(error, ReaderError):
        return text.count("\n", 0, error.position) + 1, f"it contains the control character U+{error.character:04X}"
    assert isinstance(error, MarkedYAMLError)
    assert error.problem_mark is not None
    return error.problem_mark.line + 1, " ".join(str(error.problem).split())


def _line(node: Node) -> int:
    line: int = node.start_mark.line + 1
    return line
