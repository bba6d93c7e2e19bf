"""Escapes control characters of untrusted text for terminals, logs and headers."""

from __future__ import annotations

import re

CONTROLS = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: escape sequences begin with these
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional marks, overrides and isolates
    "\u00ad\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible, or a line of its own
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # layout of hieroglyphs, shorthand and music
    "\ud800-\udfff"  # halves of surrogate pairs, which UTF-8 cannot carry
    "\U000e0000-\U000e007f"  # tags
    "]"
)
"""Characters that control a terminal, or disguise a text as another one.

Unicode's category Cf except two kinds: joiners (U+200C, U+200D), used in emoji, Persian and the scripts of India; and
the signs of Arabic, Syriac and Kaithi that span a number, which are visible.
"""

_KEPT = ("\n", "\t")
_MAX_LETTERS = 1_000
_END_LETTERS = 300
"""Letters kept at the end of a truncated line: the end says what to do."""


def printable(text: str, *, lines: bool = False) -> str:
    """Return a text with an escape of JSON's, such as ``\\u001b``, in place of each control character.

    With ``lines``, line feeds and tabs are kept. A text of only printable characters is returned unchanged.
    """
    if text.isascii() and text.isprintable():  # as most are
        return text
    return CONTROLS.sub(lambda found: found[0] if lines and found[0] in _KEPT else _escape(found[0]), text)


def one_line(text: str) -> str:
    """Return a text as one line: printable, with one space for each run of white space, including line breaks."""
    return printable(" ".join(text.split()))


def bounded_line(problem: object) -> str:
    """Return an untrusted text or error as one printable line: of a long one, both ends."""
    text = str(problem)
    if len(text) > _MAX_LETTERS:
        text = f"{text[: _MAX_LETTERS - _END_LETTERS]} ... {text[-_END_LETTERS:]}"
    return one_line(text)


def _escape(letter: str) -> str:
    code = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
