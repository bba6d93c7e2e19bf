"""Text that others chose, fit for a terminal, a log and a header: its control characters become visible escapes."""

from __future__ import annotations

import re

CONTROLS = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: escape sequences begin with these
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional marks, overrides and isolates
    "\u00ad\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible, or a line of its own
    "\ud800-\udfff"  # halves of surrogate pairs, which UTF-8 cannot carry
    "\U000e0000-\U000e007f"  # tags
    "]"
)
"""What a terminal may obey, or what makes a text look like another one.

Joiners (U+200C, U+200D) are not among them: emoji, Persian and the scripts of India are written with them.
"""

_KEPT = ("\n", "\t")


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text with an escape of JSON's, such as ``\\u001b``, in place of each control character.

    With ``lines``, line feeds and tabs stay as they are. A text of printable characters alone is returned unchanged.
    """
    return CONTROLS.sub(lambda found: found[0] if lines and found[0] in _KEPT else _escape(found[0]), text)


def one_line(text: str) -> str:
    """Return a text for a sentence: printable, with one space for each run of white space, line breaks included."""
    return printable(" ".join(text.split()))


def _escape(letter: str) -> str:
    code = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
