"""Text of guests, modules and records as people get to see it."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wasmline import dead_letters
from wasmline.build.jsonl import encoded
from wasmline.printable import bounded_line, one_line, printable

HOSTILE = {
    "an escape sequence": ("\x1b[2J", "\\u001b[2J"),
    "a C1 control": ("\x9b2J", "\\u009b2J"),
    "a carriage return": ("a\rb", "a\\u000db"),
    "a bell and a deletion": ("\x07\x7f", "\\u0007\\u007f"),
    "an override": ("a\u202eb", "a\\u202eb"),
    "an isolate": ("a\u2066b", "a\\u2066b"),
    "a line separator": ("a\u2028b", "a\\u2028b"),
    "half a pair": ("\ud800", "\\ud800"),
    "a tag": ("\U000e0041", "\\udb40\\udc41"),
    "an invisible beam of music": ("\U0001d173", "\\ud834\\udd73"),
    "an invisible step of shorthand": ("\U0001bca2", "\\ud82f\\udca2"),
}


@pytest.mark.parametrize(("text", "shown"), HOSTILE.values(), ids=HOSTILE.keys())
def test_what_a_terminal_would_obey_is_an_escape(text: str, shown: str) -> None:
    assert printable(text) == printable(text, lines=True) == shown
    assert shown.encode().isascii()


@pytest.mark.parametrize(
    "text", ["", "grüß dich", "日本語\u3000テスト", "\u0645\u06cc\u200c\u062e\u0648\u0627", "👩\u200d🔬", "a  b"]
)
def test_text_is_left_as_it_is(text: str) -> None:
    assert printable(text) is text


JOINERS = "\u200c\u200d"
SPANS_A_NUMBER = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
"""What Unicode calls prepended concatenation marks."""


def test_no_control_or_format_character_of_any_plane_is_left_but_joiners_and_visible_ones() -> None:
    everything = "".join(map(chr, range(0x110000)))
    printed = printable(everything)
    left = {letter for letter in printed if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert left - {*JOINERS, *SPANS_A_NUMBER} == set()
    assert {*JOINERS, *SPANS_A_NUMBER} <= set(printed)
    assert {letter for letter in printable(everything, lines=True) if unicodedata.category(letter) == "Cc"} == {
        "\n",
        "\t",
    }


def test_a_sentence_has_no_line_breaks() -> None:
    assert one_line("panic: no\n\n\tgoroutine 1\r\n\x1b[1m") == "panic: no goroutine 1 \\u001b[1m"


@pytest.mark.parametrize("text", [text for text, _ in HOSTILE.values() if text != "\ud800"])
def test_a_line_of_json_means_the_same_and_obeys_nothing(text: str) -> None:
    line = encoded({"value": f"{text}é"})
    assert json.loads(line) == {"value": f"{text}é"}
    assert printable(line.decode()) == line.decode()


def test_the_reason_of_a_dead_letter_is_one_printable_line() -> None:
    reason = "no\nmoney \x1b[2J\u202e\ud800"
    assert dead_letters.failure(error="E", reason=reason)[1] == (
        dead_letters.REASON,
        b"no money \\u001b[2J\\u202e\\ud800",
    )
    kept = [("other", b"\x1b[2J"), (dead_letters.REASON, None)]
    assert dead_letters.rejection([*kept, (dead_letters.REASON, b"\x1b[2J\xff")]) == [
        *kept,
        (dead_letters.REASON, "\\u001b[2J�".encode()),
        (dead_letters.ERROR, b"Rejected"),
    ]


@given(st.text(max_size=30) | st.text(" !a~:\t\x7f", max_size=30))
def test_the_reason_of_a_rejection_is_that_text_as_one_line(reason: str) -> None:
    [(_, line), _] = dead_letters.rejection([(dead_letters.REASON, reason.encode(errors="replace"))])
    assert line == one_line(reason.encode(errors="replace").decode()).encode()


def test_a_category_that_a_guest_chose_is_printable() -> None:
    assert dead_letters.label(dead_letters.REJECTED, "\x1b[2J\x9b: x") == "Rejected: \\u001b[2J\\u009b"


def test_of_a_long_text_both_ends_are_one_line() -> None:
    assert bounded_line("a\nb\x1b") == "a b\\u001b"
    line = bounded_line(f"begin {'x' * 1_000_000} end")
    assert line.startswith("begin x")
    assert line.endswith("x end")
    assert len(line) < 1_100
