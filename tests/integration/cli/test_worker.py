"""``wasmline worker`` on a real Kafka: functions and modules, both ways of delivery, signals, and how it fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result

from wasmline import dead_letters
from wasmline.cli import main
from wasmline.cli.consumer_runner import DRAINING, LEAVING
from wasmline.kafka import ConsumerGroups, produce_all, read_to_end
from wasmline.local.ports import free_port
from wasmline.registry import ArtifactMetadata, FilesystemRegistry, digest_of
from wasmline.testing import guests
from wasmline.testing.kafka import RunningKafka

HANDLERS = """
import asyncio
from pathlib import Path

from wasmline.consumer import Output

def copy(record):
    return Output("{output}", record.value, record.key)

async def copy_later(record):
    await asyncio.sleep(0)
    return copy(record)

def copy_several(records):
    return [copy(record) for record in records]

def refuse(record):
    raise ValueError(f"no {{record.value!r}} please")

def leave(record):
    raise SystemExit(5)

class Session:
    def make(self):
        return self

    def __call__(self, records):
        from wasmline.consumer import BatchResult
        return BatchResult([copy(record) for record in records], rows=range(len(records)))

def wait_for_a_line(record):
    print("begun", record.offset, flush=True)
    input()
    return copy(record)
"""

RECORDS = [(b"k%d" % (number % 10), b"%d" % number, None, 1_000 + number) for number in range(200)]


@pytest.fixture
def topic(kafka: RunningKafka) -> str:
    name = kafka.topic(partitions=3)
    produce_all(kafka.config, name, RECORDS)
    return name


@pytest.fixture
def output(kafka: RunningKafka) -> str:
    return kafka.topic(partitions=2)


@pytest.fixture
def module_name(output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write the handlers into the current folder, in a module that no other test has imported."""
    name = f"handlers_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(HANDLERS.format(output=output))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4()}"


def worker(kafka: RunningKafka, *arguments: str | Path) -> Result:
    servers = f"bootstrap.servers={kafka.bootstrap_servers}"
    return CliRunner().invoke(main, ["worker", *map(str, arguments), "--stop-at-end", "-X", servers])


def by_key(kafka: RunningKafka, topic: str) -> dict[bytes | None, list[bytes | None]]:
    found = defaultdict(list)
    for message in read_to_end(kafka.config, topic):
        found[message.key()].append(message.value())
    return dict(found)


WANTED: dict[bytes, list[bytes]] = defaultdict(list)
for key, value, _, _ in RECORDS:
    WANTED[key].append(value)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        ("copy", []),
        ("copy_later", ["--max-concurrency", "50"]),
        ("copy_several", ["--batch-size", "20"]),
        ("Session", ["--batch-size", "20", "--ordering", "partition"]),
        ("copy", ["--delivery", "exactly_once"]),
    ],
)
def test_a_function_gets_every_record_once_and_each_key_in_order(
    kafka: RunningKafka, topic: str, output: str, module_name: str, group: str, function: str, options: list[str]
) -> None:
    result = worker(kafka, topic, "--group", group, "--handler", f"{module_name}:{function}", *options)
    assert (result.exit_code, result.stdout) == (0, ""), result.stderr
    assert result.stderr.endswith("closed: 200 records done, 0 attempts failed, 0 dead letters\n")
    assert by_key(kafka, output) == WANTED
    ends = sum(ConsumerGroups(kafka.config).committed(group, topic).values())
    assert ends == len(RECORDS)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_module_gets_every_record_once_and_each_key_in_order(
    kafka: RunningKafka, topic: str, output: str, group: str, tmp_path: Path, delivery: str
) -> None:
    path = tmp_path / "echo.wasm"
    path.write_bytes(guests.guest())
    result = worker(kafka, topic, "--group", group, "--module", path, "--output-topic", output, "--delivery", delivery)
    assert result.exit_code == 0, result.stderr
    assert by_key(kafka, output) == WANTED
    origin = f"echo@unpublished {digest_of(path.read_bytes())[7:19]}"
    inputs = {each.value(): f"{topic} {each.partition()} {each.offset()}" for each in read_to_end(kafka.config, topic)}
    for each in read_to_end(kafka.config, output):
        assert each.headers() == [("wasmline.provenance", f"{inputs[each.value()]} {origin}".encode())]
    times = {message.value(): message.timestamp()[1] for message in read_to_end(kafka.config, output)}
    assert times == {value: time for _, value, _, time in RECORDS}


def test_a_record_that_a_module_fails_on_becomes_a_dead_letter_that_names_the_module(
    kafka: RunningKafka, topic: str, output: str, group: str, tmp_path: Path
) -> None:
    path = tmp_path / "picky.wasm"
    path.write_bytes(guests.guest(guests.when_key("x", guests.TRAP) + guests.WRITE))
    produce_all(kafka.config, topic, [(b"x", b"bad", [("h", b"1")], None)])
    letters = kafka.topic()
    named = ["--output-topic", output, "--dead-letter-topic", letters]
    result = worker(kafka, topic, "--group", group, "--module", path, *named)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.endswith("closed: 200 records done, 1 attempts failed, 1 dead letters\n")
    (letter,) = read_to_end(kafka.config, letters)
    assert (letter.key(), letter.value()) == (b"x", b"bad")
    headers = dict(letter.headers() or ())
    assert headers["h"] == b"1"
    assert headers[dead_letters.ERROR] == b"GuestTrap"
    assert headers[dead_letters.TRANSFORM] == b"picky@unpublished"
    assert headers[dead_letters.MODULE] == digest_of(path.read_bytes()).encode()
    assert headers[dead_letters.SOURCE_TOPIC] == topic.encode()
    assert by_key(kafka, output) == WANTED


def test_a_version_reads_and_writes_what_it_declares(
    kafka: RunningKafka, topic: str, output: str, group: str, tmp_path: Path
) -> None:
    letters = kafka.topic()
    declared = {"input-topic": topic, "output-topics": [output, letters], "dead-letter-topic": letters}
    wasm = guests.guest(guests.WRITE + guests.when_key("x", guests.write_to(guests.topic(letters))), abi=2)
    metadata = ArtifactMetadata(transform={**declared, "compression": "gzip"})
    FilesystemRegistry(str(tmp_path)).publish("copy", "1.2.0", wasm, metadata=metadata)
    produce_all(kafka.config, topic, [(b"x", b"bad", None, None)])
    named = ["--registry", str(tmp_path), "--no-provenance"]
    result = worker(kafka, "--group", group, "--module", "copy@1.2.0", *named)
    assert result.exit_code == 0, result.stderr
    assert not [each for each in read_to_end(kafka.config, output) if each.headers()]
    assert by_key(kafka, output) == {**WANTED, b"x": [b"bad"]}
    (letter,) = read_to_end(kafka.config, letters)
    headers = dict(letter.headers() or ())
    assert headers[dead_letters.ERROR] == dead_letters.REJECTED.encode()
    assert headers[dead_letters.TRANSFORM] == b"copy@1.2.0"


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_an_output_of_a_module_that_its_topic_refuses_costs_its_own_record(
    kafka: RunningKafka, topic: str, group: str, tmp_path: Path, delivery: str
) -> None:
    path = tmp_path / "echo.wasm"
    path.write_bytes(guests.guest())
    produce_all(kafka.config, topic, [(b"x", b"large" * 1_000, None, None)])
    narrow, letters = kafka.topic(max_message_bytes="2000"), kafka.topic()
    named = ["--output-topic", narrow, "--dead-letter-topic", letters, "--delivery", delivery]
    result = worker(kafka, topic, "--group", group, "--module", path, *named)
    assert result.exit_code == 0, result.stderr
    assert by_key(kafka, narrow) == WANTED
    (letter,) = read_to_end(kafka.config, letters)
    assert (letter.key(), letter.value()) == (b"x", b"large" * 1_000)
    assert dict(letter.headers() or ())[dead_letters.ERROR] == b"OutputRefused"


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("beyond", [30, 3_600], ids=["by a little", "by far"])
@pytest.mark.parametrize("refused", [{150}, {0, 7, 8, 199}], ids=["one", "several"])
def test_outputs_whose_time_their_topic_refuses_cost_their_own_records(
    kafka: RunningKafka, group: str, tmp_path: Path, delivery: str, refused: set[int], beyond: int
) -> None:
    """A broker refuses the whole batch, so that the client tells the same of every output in it."""
    path = tmp_path / "echo.wasm"
    path.write_bytes(guests.guest())
    late = int(time.time() + 3_600 + beyond) * 1_000
    topic = kafka.topic(message_timestamp_after_max_ms="86400000")
    output, letters = kafka.topic(), kafka.topic()
    rows = [(key, value, None, late if row in refused else at) for row, (key, value, _, at) in enumerate(RECORDS)]
    produce_all(kafka.config, topic, rows)
    named = ["--output-topic", output, "--dead-letter-topic", letters, "--delivery", delivery]
    result = worker(kafka, topic, "--group", group, "--module", path, *named)
    assert result.exit_code == 0, result.stderr
    refusals = list(read_to_end(kafka.config, letters))
    assert {letter.value() for letter in refusals} == {b"%d" % row for row in refused}
    assert {dict(letter.headers() or ())[dead_letters.ERROR] for letter in refusals} == {b"OutputRefused"}
    assert all(letter.timestamp()[1] < late - 3_000_000 for letter in refusals)
    wanted = {key: [value for each, value, _, at in rows if each == key and at != late] for key, _, _, _ in rows}
    found = by_key(kafka, output)
    if delivery == "exactly_once":
        assert len(refusals) == len(refused)
        assert found == wanted
    else:  # a batch that was refused is made again, with all that was written beside it
        assert {key: list(dict.fromkeys(values[::-1]))[::-1] for key, values in found.items()} == wanted


def test_a_module_that_fails_on_most_records_ends_the_worker_and_not_the_topic(
    kafka: RunningKafka, topic: str, output: str, group: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.wasm"
    path.write_bytes(guests.guest(guests.TRAP))
    letters = kafka.topic()
    named = ["--output-topic", output, "--dead-letter-topic", letters, "--max-concurrency", "1"]
    result = worker(kafka, topic, "--group", group, "--module", path, *named)
    assert result.exit_code == 1
    assert "wasmline: broken@unpublished is at fault, not its records: " in result.stderr
    assert len(list(read_to_end(kafka.config, letters))) < 100


def test_a_module_that_cannot_start_gets_no_record(
    kafka: RunningKafka, topic: str, output: str, group: str, tmp_path: Path
) -> None:
    path = tmp_path / "dead.wasm"
    path.write_bytes(guests.guest(on_start=guests.TRAP))
    result = worker(kafka, topic, "--group", group, "--module", path, "--output-topic", output)
    assert result.exit_code == 1
    assert result.stderr.startswith("wasmline: ")
    assert ConsumerGroups(kafka.config).committed(group, topic) == {}


def test_a_record_that_a_function_gives_up_is_a_dead_letter(
    kafka: RunningKafka, topic: str, module_name: str, group: str
) -> None:
    letters = kafka.topic()
    retries = ["--max-attempts", "2", "--retry-delay-ms", "0", "--dead-letter-topic", letters]
    result = worker(kafka, topic, "--group", group, "--handler", f"{module_name}:refuse", *retries)
    assert result.exit_code == 0, result.stderr
    assert result.stderr.endswith("closed: 0 records done, 400 attempts failed, 200 dead letters\n")
    reasons = {dict(each.headers() or ())[dead_letters.REASON] for each in read_to_end(kafka.config, letters)}
    assert reasons == {f"no {value!r} please".encode() for _, value, _, _ in RECORDS}


def test_without_a_dead_letter_topic_a_record_that_is_given_up_ends_the_worker(
    kafka: RunningKafka, topic: str, module_name: str, group: str
) -> None:
    once = ["--max-attempts", "1"]
    result = worker(kafka, topic, "--group", group, "--handler", f"{module_name}:refuse", *once)
    assert result.exit_code == 1
    assert "failed for good at attempt 1, and there is no dead-letter topic: no b'" in result.stderr


def test_a_handler_that_leaves_ends_the_worker_with_its_status(
    kafka: RunningKafka, topic: str, module_name: str, group: str
) -> None:
    result = worker(kafka, topic, "--group", group, "--handler", f"{module_name}:leave")
    assert result.exit_code == 5
    assert ConsumerGroups(kafka.config).committed(group, topic) == {}


def test_the_end_of_a_topic_that_was_written_in_transactions_is_reached(
    kafka: RunningKafka, output: str, module_name: str, group: str
) -> None:
    topic = kafka.topic()
    copy = ["--handler", f"{module_name}:copy", "--delivery", "exactly_once"]
    produce_all(kafka.config, topic, RECORDS)
    first = worker(kafka, topic, "--group", group, *copy)
    assert first.exit_code == 0, first.stderr
    again = worker(kafka, output, "--group", f"{group}-2", "--handler", f"{module_name}:refuse", "--max-attempts", "1",
                   "--dead-letter-topic", kafka.topic())  # fmt: skip
    assert again.exit_code == 0, again.stderr
    assert "0 records done, 200 attempts failed, 200 dead letters" in again.stderr


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_two_members_end_once_both_are_done(
    kafka: RunningKafka, topic: str, output: str, module_name: str, group: str, delivery: str
) -> None:
    asked = (topic, "--group", group, "--handler", f"{module_name}:copy", "--delivery", delivery, "--stop-at-end")
    members = [started(kafka, *asked) for _ in range(2)]
    try:
        assert [member.wait(60) for member in members] == [0, 0]
    finally:
        for member in members:
            member.kill()
            member.communicate()
    found = by_key(kafka, output)
    assert {key: set(values) for key, values in found.items()} == {key: set(values) for key, values in WANTED.items()}


def test_a_second_run_has_nothing_left_to_do(kafka: RunningKafka, topic: str, module_name: str, group: str) -> None:
    for done in (200, 0):
        result = worker(kafka, topic, "--group", group, "--handler", f"{module_name}:copy")
        assert result.stderr.endswith(f"closed: {done} records done, 0 attempts failed, 0 dead letters\n")


@pytest.mark.parametrize(
    ("missing", "options"),
    [("topic", []), ("dead letters", ["--dead-letter-topic", "nowhere"])],
)
def test_a_topic_that_does_not_exist_is_named(
    kafka: RunningKafka, topic: str, module_name: str, group: str, missing: str, options: list[str]
) -> None:
    read = "nowhere" if missing == "topic" else topic
    result = worker(kafka, read, "--group", group, "--handler", f"{module_name}:copy", *options)
    assert result.exit_code == 1
    assert "there is no topic nowhere" in result.stderr


def started(kafka: RunningKafka, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "WASMLINE_KAFKA_CONFIG": json.dumps(kafka.config.properties)}
    return subprocess.Popen(
        [sys.executable, "-m", "wasmline.cli", "worker", *arguments],
        env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_sigterm_lets_a_worker_finish_what_it_has_read(
    kafka: RunningKafka, output: str, module_name: str, group: str
) -> None:
    topic = kafka.topic()
    produce_all(kafka.config, topic, RECORDS[:3])
    one = ["--max-concurrency", "1", "--ordering", "partition"]
    with started(kafka, topic, "--group", group, "--handler", f"{module_name}:wait_for_a_line", *one) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun 0\n"
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate("\n" * 3)
    assert process.returncode == 0, told
    assert told == f"{DRAINING}\nclosed: 3 records done, 0 attempts failed, 0 dead letters\n"
    assert len(list(read_to_end(kafka.config, output))) == 3
    assert ConsumerGroups(kafka.config).committed(group, topic) == {0: 3}


def test_metrics_are_served_while_a_worker_runs(kafka: RunningKafka, output: str, module_name: str, group: str) -> None:
    topic, port = kafka.topic(), free_port(set())
    produce_all(kafka.config, topic, RECORDS[:2])
    serial = ["--ordering", "partition", "--metrics-port", str(port)]
    with started(kafka, topic, "--group", group, "--handler", f"{module_name}:wait_for_a_line", *serial) as process:
        assert process.stdout
        assert process.stdout.readline() == "begun 0\n"
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate("\n" * 2)
    assert process.returncode == 0, told
    assert "\npc_inflight_records 1.0\n" in text
    assert f'\npc_partition_lag{{partition="0",topic="{topic}"}} 2.0\n' in text


def test_a_second_signal_leaves_the_rest_to_the_next_worker(
    kafka: RunningKafka, output: str, module_name: str, group: str
) -> None:
    topic = kafka.topic()
    produce_all(kafka.config, topic, RECORDS[:3])
    one = ["--max-concurrency", "1", "--ordering", "partition"]
    with started(kafka, topic, "--group", group, "--handler", f"{module_name}:wait_for_a_line", *one) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdin
        assert process.stdout.readline() == "begun 0\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == f"{DRAINING}\n"
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "begun 1\n"
        process.send_signal(signal.SIGTERM)
        assert process.stderr.readline() == f"{LEAVING}\n"
        _, told = process.communicate("\n")
    assert process.returncode == 0, told
    assert told == "closed: 2 records done, 0 attempts failed, 0 dead letters\n"
    assert ConsumerGroups(kafka.config).committed(group, topic) == {0: 2}
