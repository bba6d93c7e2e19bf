"""``wasmline worker`` before it reads: what it is told, and the handler that it is to run."""

import json
import sys
import uuid
from pathlib import Path

import pytest
from click import BadParameter
from click.testing import CliRunner, Result

from wasmline.cli import main
from wasmline.cli.consumer_runner import ProgressLine, summary
from wasmline.cli.handler_option import load_handler
from wasmline.consumer import ConsumedRecord, ConsumerHealth, HandlerFactory, State
from wasmline.consumer.health import Counters, PartitionHealth, WaitingKey
from wasmline.topic_partitions import TopicPartition

NOWHERE = json.dumps({"bootstrap.servers": "127.0.0.1:1"})


def worker(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["worker", *arguments], env={"WASMLINE_KAFKA_CONFIG": NOWHERE})


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module of handlers into the current folder, under a name that nobody has imported."""
    name = f"shop_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(
        "def charge(record): return None\n"
        "class Till:\n"
        "    def make(self): return charge\n"
        "    def ring(self, record): return record\n"
        "till = Till()\n"
        "price = 7\n"
    )
    (tmp_path / f"{name}_broken.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_a_function_of_the_current_folder_is_found(name: str) -> None:
    handler = load_handler(f"{name}:charge")
    assert callable(handler)
    assert handler(ConsumedRecord("t", 0, 0, None, None)) is None


def test_a_class_is_instantiated_and_a_method_found(name: str) -> None:
    assert isinstance(load_handler(f"{name}:Till"), HandlerFactory)
    assert callable(load_handler(f"{name}:till.ring"))


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("shop", "'shop' is not MODULE:FUNCTION"),
        (":charge", "':charge' is not MODULE:FUNCTION"),
        ("{name}:", "is not MODULE:FUNCTION"),
        ("no_such_module:charge", "no module 'no_such_module' in "),
        ("no_such.module:charge", "no module 'no_such.module' in "),
        ("{name}:refund", "has no attribute 'refund'"),
        ("{name}:price", "is a int: a handler must be a function of a record"),
    ],
)
def test_a_handler_that_is_none_is_named(name: str, reference: str, told: str) -> None:
    with pytest.raises(BadParameter) as raised:
        load_handler(reference.format(name=name))
    assert told in raised.value.message


def test_what_a_module_of_handlers_raises_is_its_own(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        load_handler(f"{name}_broken:charge")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["t", "--group", "g"], "exactly one of --handler and --module is required"),
        (["t", "--group", "g", "--handler", "a:b", "--module", "c"], "exactly one of --handler and --module"),
        (["t", "--handler", "a:b"], "Missing option '--group'"),
        (["t", "--group", "g", "--handler", "a:b", "--env", "K=V"], "are for --module"),
        (["--group", "g", "--handler", "json:dumps"], "name the topics to read"),
        (
            ["t", "--group", "g", "--handler", "json:dumps", "--stop-at-end", "-X", "auto.offset.reset=latest"],
            "--stop-at-end needs auto.offset.reset=earliest",
        ),
        (["^t", "--group", "g", "--handler", "json:dumps", "--stop-at-end"], "--stop-at-end needs the topics by name"),
    ],
)
def test_what_does_not_fit_together_is_wrong_usage(arguments: list[str], told: str) -> None:
    result = worker(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_module_by_itself_needs_its_topics(module: Path) -> None:
    for arguments in (["t"], ["--output-topic", "o"], ["t", "u", "--output-topic", "o"]):
        result = worker(*arguments, "--group", "g", "--module", str(module))
        assert result.exit_code == 2
        assert "topic" in result.stderr


def test_an_option_that_has_no_meaning_is_an_error(tmp_path: Path) -> None:
    result = worker("t", "--group", "g", "--handler", "json:dumps", "-X", "enable.auto.commit=true")
    assert result.exit_code == 1
    assert result.stderr.startswith("wasmline: enable.auto.commit would commit records")


PLACE = TopicPartition("orders", 0)


def health(records: int, *waiting: WaitingKey, lag: int | None = 40, given_up: int = 0) -> ConsumerHealth:
    partition = PartitionHealth(
        partition=PLACE, next_commit=0, lag=lag, queued=0, in_flight=3, buffered_bytes=0, incompletes=3, oldest=None,
        paused=False, blocked=False,
    )  # fmt: skip
    counters = Counters(records=records, failures=given_up, given_up=given_up)
    return ConsumerHealth(state=State.RUNNING, counters=counters, partitions=(partition,), waiting=waiting)


def waiting(offset: int, seconds: float | None, error: str | None = None) -> WaitingKey:
    return WaitingKey(partition=PLACE, key=b"k", offset=offset, attempt=1, seconds=seconds, error=error)


def test_a_line_has_the_rate_since_the_line_before() -> None:
    progress = ProgressLine(100.0)
    assert progress.line(health(5_000), 102.0) == "running: 5,000 records, 2,500/s, lag 40, 3 in flight"
    assert progress.line(health(6_000), 112.0) == "running: 6,000 records, 100/s, lag 40, 3 in flight"


def test_a_line_names_the_key_that_is_held_up_the_longest() -> None:
    line = ProgressLine(0.0).line(health(0, waiting(7, 12.4), waiting(9, 11.0), waiting(8, 9.9), lag=None), 1.0)
    assert line.endswith("lag unknown, 3 in flight, 2 keys blocked, first orders-0@7 in flight for 12 s")
    line = ProgressLine(0.0).line(health(0, waiting(7, None, "ValueError: no"), given_up=2), 1.0)
    assert line.endswith("2 dead letters, 1 keys blocked, first orders-0@7 after ValueError: no")


def test_the_summary_says_what_was_done() -> None:
    assert summary(health(5, given_up=2)) == "running: 5 records done, 2 attempts failed, 2 dead letters"
