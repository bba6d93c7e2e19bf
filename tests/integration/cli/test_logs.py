"""``wasmline logs`` on a real broker."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner

from wasmline.cli import main
from wasmline.control import StatusTopic
from wasmline.testing.kafka import RunningKafka

LINES = ["INFO one", "WARN two \x1b[31m", "INFO three"]


@pytest.fixture
def name(kafka: RunningKafka) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    with closing(StatusTopic(kafka.config)) as topic:
        topic.write_logs(f"{name}-other", ["INFO not of this transform"])
        topic.write_logs(name, LINES)
    return name


def run(kafka: RunningKafka, name: str, *options: str) -> Any:
    arguments = ["logs", name, "-X", f"bootstrap.servers={kafka.bootstrap_servers}", *options]
    return CliRunner().invoke(main, arguments)


def test_the_lines_of_a_transform_are_shown_without_control_characters(kafka: RunningKafka, name: str) -> None:
    assert run(kafka, name).stdout.splitlines() == ["INFO one", r"WARN two \u001b[31m", "INFO three"]
    assert run(kafka, name, "--head", "1").stdout == "INFO one\n"
    assert run(kafka, name, "--tail", "1").stdout == "INFO three\n"
    assert re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  .*\n){3}", run(kafka, name, "--format", "wide").stdout)
    documents = [json.loads(line) for line in run(kafka, name, "--format", "json").stdout.splitlines()]
    assert [(each["transform"], each["line"]) for each in documents] == [(name, line) for line in LINES]


def test_lines_are_selected_by_their_time(kafka: RunningKafka, name: str) -> None:
    assert len(run(kafka, name, "--since", "15m").stdout.splitlines()) == 3
    assert len(run(kafka, name, "--since", "2026-01-01T00:00:00Z").stdout.splitlines()) == 3
    nothing = run(kafka, name, "--until", "15m")
    assert (nothing.stdout, nothing.exit_code) == ("", 0)
    assert f"there are no log lines of {name}" in nothing.stderr
    assert run(kafka, name, "--since", "yesterday").exit_code == 2


@pytest.mark.parametrize(
    "options", [("--head", "1", "--tail", "1"), ("-f", "--head", "1"), ("-f", "--until", "1s"), ("--tail", "-1")]
)
def test_options_that_exclude_each_other_are_refused(kafka: RunningKafka, options: tuple[str, ...]) -> None:
    assert run(kafka, "t", *options).exit_code == 2


def test_new_lines_are_shown_as_they_come(kafka: RunningKafka, name: str) -> None:
    command = [sys.executable, "-m", "wasmline.cli", "logs", name, "-f", "--tail", "1"]
    settings = ["-X", f"bootstrap.servers={kafka.bootstrap_servers}"]
    with subprocess.Popen([*command, *settings], stdout=subprocess.PIPE, text=True) as following:
        try:
            assert following.stdout is not None
            assert following.stdout.readline() == "INFO three\n"
            with closing(StatusTopic(kafka.config)) as topic:
                topic.write_logs(name, ["INFO four"])
            assert following.stdout.readline() == "INFO four\n"
        finally:
            following.kill()
