"""Redrives of the page, which go on after their request."""

from __future__ import annotations

import threading

import pytest

from wasmline.errors import BrokerUnavailable, InvalidRedrive
from wasmline.local.process import wait_until
from wasmline_provider.plugin import actions
from wasmline_provider.plugin.actions import RedriveCalls

TOPIC = "letters"
PROBLEM = "BrokerUnavailable: no leader"
TIMEOUT_S = 30.0


def fail() -> str:
    raise BrokerUnavailable("no leader", bootstrap_servers="localhost:9092")


def test_why_a_redrive_has_failed_is_told_at_every_look_until_the_next() -> None:
    redrives = RedriveCalls()
    with pytest.raises(BrokerUnavailable, match="no leader"):
        redrives.begin(TOPIC, fail)
    assert [redrives.problem(topic) for topic in (TOPIC, TOPIC, "others", None)] == [PROBLEM, PROBLEM, "", ""]
    assert redrives.begin(TOPIC, lambda: "2 dead letters redriven") == "2 dead letters redriven"
    assert redrives.problem(TOPIC) == ""


def test_why_a_redrive_has_failed_after_its_request_is_told_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "ANSWER_S", 0.0)
    redrives, failing = RedriveCalls(), threading.Event()

    def fail_later() -> str:
        failing.wait()
        return fail()

    assert redrives.begin(TOPIC, fail_later) == f"the redrive of {TOPIC} has begun"
    assert redrives.problem(TOPIC) == ""
    with pytest.raises(InvalidRedrive, match="wait for the end"):
        redrives.begin(TOPIC, fail)
    failing.set()
    assert wait_until(lambda: bool(redrives.problem(TOPIC)), TIMEOUT_S)
    assert redrives.problem(TOPIC) == PROBLEM
