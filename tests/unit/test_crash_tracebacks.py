"""A process of the suite that crashes says in the report where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import nested_pytest

HANGS = "-o faulthandler_timeout=1 -o faulthandler_exit_on_timeout=true"

TEST = """
import faulthandler, os, signal, time

def test_ends():
    {end}
"""


@pytest.mark.parametrize(
    ("end", "options", "told"),
    [
        ("faulthandler._sigsegv()", "", ["exit status -11", "Fatal Python error: Segmentation fault", "in test_ends"]),
        ("time.sleep(100)", HANGS, ["exit status 1", "Timeout (0:00:01)!", "in test_ends"]),
        ("os.kill(os.getpid(), signal.SIGKILL)", "", ["exit status -9", "faulthandler wrote nothing"]),
    ],
    ids=["crash", "hang", "kill"],
)
def test_the_report_of_a_crash_says_where_it_was(tmp_path: Path, end: str, options: str, told: list[str]) -> None:
    (tmp_path / "test_it.py").write_text(TEST.format(end=end))
    output = nested_pytest.output(tmp_path, f"-p support.crash_tracebacks -n 1 {options}")
    _, report = output.split("FAILURES")
    assert all(each in report for each in ["crashed while running", *told]), output
