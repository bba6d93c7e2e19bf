"""The end of a log: whole lines, printable, of a bounded size."""

from pathlib import Path

import pytest

from wasmline.log_end import log_end


@pytest.mark.parametrize(
    ("content", "end"),
    [
        (b"", ""),
        (b"one\ntwo\n", "one\ntwo"),
        (b"x" * 50 + b"\nlast but one\nlast\n", "last but one\nlast"),
        (b"first\n" + b"y" * 50, "y" * 30),
        (b"first\n" + b"z" * 50 + b"\n", "z" * 29),
        ("€".encode() * 20, "€" * 10),
        (b"\x1b[31mred\xff\n", "\\u001b[31mred\ufffd"),
    ],
)
def test_a_log_ends_with_its_last_whole_lines(tmp_path: Path, content: bytes, end: str) -> None:
    log = tmp_path / "driver.log"
    log.write_bytes(content)
    assert log_end(log, 30) == end


def test_a_log_that_cannot_be_read_has_no_end(tmp_path: Path) -> None:
    assert log_end(tmp_path / "elsewhere.log") == ""
    assert log_end(tmp_path) == ""
