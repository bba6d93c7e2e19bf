"""What ``make demo`` and ``make install`` print, and that they are never silent for long."""

import io
import itertools
import threading

from rich.console import Console

from demo_stack.progress_lines import SILENCE_LIMIT_S, ProgressLines
from demo_stack.terminal_progress import TerminalProgress, progress_on


class FakeClock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_waited_for_is_printed_again_after_each_silence_with_how_long_it_takes() -> None:
    clock, lines = FakeClock(), list[str]()
    progress = ProgressLines(lines.append, clock)
    progress.wait_for("starting Kafka")
    for _ in range(20):
        clock.now += 0.5
        progress.check()
    assert lines == ["[   4.0 s] starting Kafka (4 s)", "[   8.0 s] starting Kafka (8 s)"]


def test_a_line_of_its_own_is_no_silence() -> None:
    clock, lines = FakeClock(), list[str]()
    progress = ProgressLines(lines.append, clock)
    progress.wait_for("building")
    for number in range(5):
        clock.now += SILENCE_LIMIT_S - 0.1
        progress.check()
        progress.say(f"line {number}")
    assert [line.partition("] ")[2] for line in lines] == [f"line {number}" for number in range(5)]


def test_the_time_of_a_wait_begins_with_it_and_not_with_its_repetition() -> None:
    clock, lines = FakeClock(), list[str]()
    progress = ProgressLines(lines.append, clock)
    progress.wait_for("one")
    clock.now += 3
    progress.wait_for("another")
    clock.now += 2
    progress.wait_for("another")
    progress.check()
    assert lines == ["[   5.0 s] another (2 s)"]


def test_the_lines_come_while_the_program_does_something_else() -> None:
    written = threading.Event()
    with ProgressLines(lambda _: written.set(), itertools.count(0, 10).__next__) as progress:
        progress.wait_for("anything")
        assert written.wait(60)


def test_a_terminal_shows_what_is_drawn_and_waited_for_and_keeps_only_lines() -> None:
    shown = io.StringIO()
    progress = progress_on(Console(file=shown, width=80, force_terminal=True))
    assert isinstance(progress, TerminalProgress)
    with progress:
        progress.say("Kafka is [up]")
        progress.note("a change that the table shows")
        progress.draw("the table")
        progress.wait_for("starting Airflow")
    text = shown.getvalue()
    assert text.index("Kafka is [up]") < text.index("the table") < text.index("starting Airflow (0 s)")
    assert "a change" not in text


def test_elsewhere_there_are_lines() -> None:
    shown = io.StringIO()
    with progress_on(Console(file=shown, width=20)) as progress:
        progress.draw("the table")
        progress.note("build: [bold] and longer than a line")
    assert shown.getvalue().partition("] ")[2] == "build: [bold] and longer than a line\n"
