import base64
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wasmline.cli import main
from wasmline.cli.schema import SchemaFile
from wasmline.printable import printable
from wasmline.registry import ArtifactMetadata, FilesystemRegistry
from wasmline.testing import guests


def run(*arguments: str | Path, lines: str = "") -> Result:
    return CliRunner().invoke(main, ["run", *map(str, arguments)], input=lines)


def parsed(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def raw(value: str | dict[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


def test_records_go_through_a_module(module: Path) -> None:
    result = run(module, lines='{"key":"k","value":"v","partition":1,"offset":7}\n{"value":null}\n')
    assert result.exit_code == 0
    assert result.stderr == ""
    assert parsed(result) == [
        {
            "output": 0,
            "topic": "output",
            "key": "k",
            "value": "v",
            "headers": [],
            "source": {"partition": 1, "offset": 7},
        },
        {
            "output": 0,
            "topic": "output",
            "key": None,
            "value": None,
            "headers": [],
            "source": {"partition": 0, "offset": 1},
        },
    ]


def test_a_failing_record_is_a_line_and_exit_status_3_and_the_run_goes_on(module: Path) -> None:
    result = run(module, lines='{"value":"a"}\n{"value":"b!"}\n{"value":"c"}\n')
    assert result.exit_code == 3
    first, bad, last = parsed(result)
    assert (first["value"], last["value"]) == ("a", "c")
    assert bad["error"] == "GuestTrap"
    assert "unreachable" in bad["reason"]
    assert bad["source"] == {"partition": 0, "offset": 1}


def test_the_output_topics_can_be_given(module: Path) -> None:
    result = run(module, "--output-topic", "a", "--output-topic", "b", lines='{"value":"x"}\n')
    assert parsed(result)[0]["topic"] == "a"


ENVIRONMENT = (
    "(drop (call $environ_sizes_get (i32.const 500) (i32.const 504)))"
    "(drop (call $environ_get (i32.const 600) (i32.const 1024)))" + guests.write_cells(*range(1024, 1024 + 120, 8))
)


@pytest.fixture
def environment(tmp_path: Path) -> list[str | Path]:
    """Return each reference to a module that writes its environment."""
    wasm = guests.guest(ENVIRONMENT)
    (tmp_path / "env.wasm").write_bytes(wasm)
    registry = FilesystemRegistry(str(tmp_path / "registry"))
    declared = {"input-topic": "orders", "output-topics": ["output"]}
    registry.publish("env", "1.0.0", wasm, metadata=ArtifactMetadata(transform=declared))
    return [tmp_path / "env.wasm", "env@1.0.0"]


def seen(result: Result) -> set[str]:
    """Return the variables that the guest found."""
    assert result.exit_code == 0, result.stderr
    return set(raw(parsed(result)[0]["value"]).decode().split("\0"))


def test_the_guest_is_told_the_input_topic_that_is_given(environment: list[str | Path], tmp_path: Path) -> None:
    for transform, declared in zip(environment, ("input", "orders"), strict=True):
        command = (transform, "--registry", tmp_path / "registry")
        assert f"REDPANDA_INPUT_TOPIC={declared}" in seen(run(*command, lines='{"value":"x"}\n'))
        told = seen(run(*command, "--input-topic", "payments", lines='{"value":"x"}\n'))
        assert "REDPANDA_INPUT_TOPIC=payments" in told
        assert "REDPANDA_OUTPUT_TOPIC_0=output" in told


@pytest.mark.parametrize(
    ("topics", "complaint"),
    [
        (("--input-topic", "output"), "output is both input and output; the transform would feed itself"),
        (("--input-topic", "a", "--output-topic", "a"), "a is both input and output"),
        (("--input-topic", ""), "a topic takes 0 bytes"),
        (("--input-topic", "a" * 250), "a topic takes 250 bytes"),
        (("--input-topic", "a\x1b[2J"), r"contains a control character: 'a\x1b[2J'"),
    ],
)
def test_an_input_topic_that_a_deployment_could_not_have_is_refused(
    environment: list[str | Path], tmp_path: Path, topics: tuple[str, ...], complaint: str
) -> None:
    for transform in environment:
        result = run(transform, *topics, "--registry", tmp_path / "registry", lines='{"value":"x"}\n')
        assert (result.exit_code, result.stdout) == (1, "")
        assert complaint in result.stderr


def test_an_input_topic_may_be_the_declared_output_topic_if_that_is_replaced(environment: list[str | Path]) -> None:
    result = run(environment[0], "--input-topic", "output", "--output-topic", "other", lines='{"value":"x"}\n')
    assert "REDPANDA_INPUT_TOPIC=output" in seen(result)


@pytest.mark.parametrize("then", [guests.TRAP, guests.leave(0), guests.write_bytes(b"\x01\x01\x02\x02\xff\x00")])
def test_a_record_that_fails_gives_none_of_its_outputs(tmp_path: Path, then: str) -> None:
    """As of a trap or an exit after a record was written, and of a header whose name is not UTF-8."""
    (tmp_path / "some.wasm").write_bytes(guests.guest(guests.WRITE + guests.when_key("p", then)))
    lines = "".join(json.dumps({"key": key, "value": key}) + "\n" for key in ("a", "poison", "b"))
    result = run(tmp_path / "some.wasm", lines=lines)
    assert result.exit_code == 3
    first, bad, last = parsed(result)
    assert (first["value"], last["value"]) == ("a", "b")
    assert (bad["source"]["offset"], set(bad)) == (1, {"error", "reason", "source"})


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r"


def test_a_guest_s_log_does_not_command_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "log.wasm").write_bytes(guests.guest(guests.log(f"{ESCAPES}hello\tthere\n")))
    shown = run(tmp_path / "log.wasm", "--logs", "-", lines='{"value":"a"}\n')
    assert shown.stderr == r"\u001b]0;owned\u0007\u001b[2J\u009b31m\u007f\u000dhello" + "\tthere\n"
    run(tmp_path / "log.wasm", "--logs", tmp_path / "log", lines='{"value":"a"}\n')
    assert (tmp_path / "log").read_bytes().decode() == f"{ESCAPES}hello\tthere\n"


def test_an_output_does_not_command_the_terminal(module: Path) -> None:
    result = run(module, lines=json.dumps({"key": f"é{ESCAPES}", "value": ESCAPES, "headers": [[ESCAPES, ""]]}) + "\n")
    (line,) = parsed(result)
    assert (line["key"], line["value"], line["headers"]) == (f"é{ESCAPES}", ESCAPES, [[ESCAPES, ""]])
    assert result.stdout.removesuffix("\n").isprintable()


def test_no_records_give_no_lines(module: Path) -> None:
    result = run(module)
    assert (result.exit_code, result.stdout) == (0, "")


def test_a_malformed_line_ends_the_run_after_the_records_before_it(module: Path) -> None:
    result = run(module, lines='{"value":"a"}\nnonsense\n')
    assert result.exit_code == 1
    assert [line["value"] for line in parsed(result)] == ["a"]
    assert result.stderr.startswith("wasmline: stdin:2: not a record: ")


def test_the_guest_s_log_goes_where_it_is_sent_and_nowhere_else(module: Path, tmp_path: Path) -> None:
    silent = run(module, lines='{"value":"why?"}\n')
    shown = run(module, "--logs", "-", lines='{"value":"why?"}\n')
    kept = run(module, "--logs", tmp_path / "guest.log", lines='{"value":"why?"}\n{"value":"who?"}\n')
    assert (silent.stderr, shown.stderr, kept.stderr) == ("", "asked\n", "")
    assert shown.stdout == silent.stdout
    assert (tmp_path / "guest.log").read_text() == "asked\nasked\n"


def test_nothing_that_a_guest_says_reaches_a_terminal_as_it_is(tmp_path: Path) -> None:
    hostile = "\x1b]0;owned\x07\x9b2J\u202e\n"
    (tmp_path / "echo.wasm").write_bytes(guests.guest(guests.log(hostile) + guests.WRITE))
    (tmp_path / "fail.wasm").write_bytes(guests.guest(guests.log(hostile) + guests.TRAP))
    (tmp_path / "start.wasm").write_bytes(guests.guest(on_start=guests.log(hostile) + guests.TRAP))
    line = json.dumps({"value": hostile}) + "\n"
    for name in ("echo", "fail", "start"):
        result = run(tmp_path / f"{name}.wasm", "--logs", "-", lines=line)
        assert "\\u001b]0;owned\\u0007\\u009b2J\\u202e" in result.stderr
        assert printable(result.stderr, lines=True) == result.stderr
        assert printable(result.stdout, lines=True) == result.stdout
    assert parsed(run(tmp_path / "echo.wasm", lines=line))[0]["value"] == hostile
    run(tmp_path / "echo.wasm", "--logs", tmp_path / "guest.log", lines=line)
    assert (tmp_path / "guest.log").read_text() == hostile


def test_a_file_that_cannot_be_written_is_one_line_on_stderr(module: Path, tmp_path: Path) -> None:
    result = run(module, "--logs", tmp_path / "nowhere/guest.log", lines='{"value":"a"}\n')
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "nanoseconds"),
    [
        ((), [1_002_000, 2_005_000]),
        (("--clock", "wasmline"), [1_002_000, 2_005_000]),
        (("--clock", "redpanda"), [2_000_000, 5_000_000]),
    ],
)
def test_the_clock_moves_by_the_rule_that_is_chosen(
    tmp_path: Path, options: tuple[str, ...], nanoseconds: list[int]
) -> None:
    third_reading = guests.read_clock(1, 512) * 3 + guests.write_cells(512)
    (tmp_path / "clock.wasm").write_bytes(guests.guest(third_reading))
    result = run(tmp_path / "clock.wasm", *options, lines='{"value":"a"}\n{"value":"b"}\n')
    assert [int.from_bytes(raw(line["value"]), "little") for line in parsed(result)] == nanoseconds


SCHEMA_ANSWER = """
  (if (i32.ne (call $get_subject_schema_len (i32.const 900) (i32.const 12) (i32.const -1) (i32.const 1000))
              (i32.const 0))
    (then (unreachable)))
  (drop (call $get_subject_schema (i32.const 900) (i32.const 12) (i32.const -1) (i32.const 1024) (i32.const 512)))
"""


@pytest.mark.parametrize(
    ("option", "file", "answer"),
    [
        ("7:orders-value={}", "a.avsc", b"\x0e\x02\x00\x04{}\x00"),
        ("7:orders-value:3={}", "a.proto", b"\x0e\x06\x02\x04{}\x00"),
        ("7:orders-value:3={}", "a.json", b"\x0e\x06\x04\x04{}\x00"),
        ("7:orders-value=protobuf:{}", "a=b.txt", b"\x0e\x02\x02\x04{}\x00"),
    ],
)
def test_a_guest_finds_the_schemas_that_are_handed_in(tmp_path: Path, option: str, file: str, answer: bytes) -> None:
    body = guests.store(900, b"orders-value") + SCHEMA_ANSWER + guests.write_cells(1024)
    (tmp_path / "look.wasm").write_bytes(guests.guest(body))
    (tmp_path / file).write_text("{}")
    (tmp_path / "other.avsc").write_text('"other"')
    schemas = ["--schema", option.format(tmp_path / file), "--schema", f"8={tmp_path / 'other.avsc'}"]
    result = run(tmp_path / "look.wasm", *schemas, lines='{"value":"a"}\n')
    assert [raw(line["value"]) for line in parsed(result)] == [answer.ljust(8, b"\0")]


@pytest.mark.parametrize(
    ("name", "subject", "version"),
    [("7", None, 1), ("7:a", "a", 1), ("7:a:b", "a:b", 1), ("7:a:b:2", "a:b", 2), ("7::.prod:a:2", ":.prod:a", 2)],
)
def test_a_schema_s_name_is_its_id_its_subject_and_its_version(
    tmp_path: Path, name: str, subject: str | None, version: int
) -> None:
    (tmp_path / "a.avsc").write_text("{}")
    schema = SchemaFile().convert(f"{name}={tmp_path / 'a.avsc'}", None, None)
    assert (schema.id, schema.subject, schema.version) == (7, subject, version)


def test_schemas_that_contradict_each_other_are_refused(module: Path, tmp_path: Path) -> None:
    for name in ("a.avsc", "b.avsc"):
        (tmp_path / name).write_text(f'"{name}"')
    result = run(module, "--schema", f"1={tmp_path / 'a.avsc'}", "--schema", f"1={tmp_path / 'b.avsc'}")
    assert result.exit_code == 1
    assert "schema id 1 is given to two definitions" in result.stderr


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("a.avsc", "is not ID=FILE"),
        ("one=a.avsc", "is not ID=FILE"),
        ("1=", "is not ID=FILE"),
        ("1:=a.avsc", "is not ID=FILE"),
        ("1:a:=a.avsc", "is not ID=FILE"),
        ("1::2=a.avsc", "is not ID=FILE"),
        ("1:a::2=a.avsc", "is not ID=FILE"),
        ("\N{ARABIC-INDIC DIGIT ONE}=a.avsc", "is not ID=FILE"),
        ("1=a.txt", "add the format"),
        ("1=none.avsc", "cannot be read"),
        ("1=latin.avsc", "not UTF-8"),
        ("2147483648=a.avsc", "must be from"),
        ("1:s:0=a.avsc", "must be from"),
    ],
)
def test_a_schema_that_makes_no_sense_is_wrong_usage(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, complaint: str
) -> None:
    (tmp_path / "a.avsc").write_text("{}")
    (tmp_path / "a.txt").write_text("{}")
    (tmp_path / "latin.avsc").write_bytes(b"\xe9")
    monkeypatch.chdir(tmp_path)
    result = run(module, "--schema", value)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_limits_are_taken_from_the_options(module: Path) -> None:
    result = run(module, "--memory", "64KiB")
    assert result.exit_code == 1
    assert "memory" in result.stderr


@pytest.mark.parametrize(
    ("option", "value"), [("--memory", "much"), ("--timeout-ms", "0"), ("--env", "A"), ("--env", "A="), ("--env", "=1")]
)
def test_an_option_that_makes_no_sense_is_wrong_usage(module: Path, option: str, value: str) -> None:
    result = run(module, option, value)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_a_reserved_variable_is_refused(module: Path) -> None:
    result = run(module, "--env", "REDPANDA_X=1")
    assert result.exit_code == 1
    assert "REDPANDA_X cannot name an environment variable" in result.stderr


def test_bytes_that_are_not_a_module_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.wasm").write_text("hello")
    result = run(tmp_path / "text.wasm")
    assert result.exit_code == 1
    assert result.stderr.startswith("wasmline: not a WebAssembly module")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = run(tmp_path / "none.wasm")
    assert result.exit_code == 1
    assert "none.wasm does not exist" in result.stderr


def test_a_version_runs_with_what_was_declared_when_it_was_published(wasm: bytes, tmp_path: Path) -> None:
    declared = {
        "input-topic": "in",
        "output-topics": ["loud", "dlq"],
        "env": {},
        "memory-bytes": 2**23,
        "timeout-ms": 50,
    }
    registry = FilesystemRegistry(str(tmp_path))
    registry.publish("echo", "1.0.0", wasm, metadata=ArtifactMetadata(transform=declared))
    registry.publish("echo", "2.0.0-rc.1", wasm)
    for reference in ("echo@1.0.0", "echo"):
        result = run(reference, "--registry", tmp_path, lines='{"value":"x"}\n')
        assert parsed(result)[0]["topic"] == "loud"
    missing = run("eco@1.0.0", "--registry", tmp_path)
    assert missing.exit_code == 1
    assert "did you mean echo?" in missing.stderr


def test_an_answer_comes_while_the_input_is_still_open(module: Path) -> None:
    command = [sys.executable, "-m", "wasmline.cli", "run", str(module)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(b'{"value":"%d"}\n' % number)
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["value"] == str(number)
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_an_endless_input_flows_through_until_the_reader_has_enough(module: Path) -> None:
    """The input never ends, so whatever held it all back would never answer."""
    script = f"""yes '{{"value":"x"}}' | {sys.executable} -m wasmline.cli run {module} | head -n 50000 | wc -l"""
    ended = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True, timeout=120, env={**os.environ}
    )
    assert ended.stdout.strip() == "50000"
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(("closed", "name"), [("<&-", "stdin"), ("</dev/null >&-", "stdout")])
def test_a_standard_stream_that_is_closed_is_named(module: Path, closed: str, name: str) -> None:
    command = shlex.join([sys.executable, "-m", "wasmline.cli", "run", str(module)])
    ended = subprocess.run(["sh", "-c", f"{command} {closed}"], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert ended.stderr == f"wasmline: {name} is closed: connect it to a file, a pipe or /dev/null\n"
