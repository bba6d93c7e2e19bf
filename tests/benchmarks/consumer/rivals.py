"""The contestants, each in a process of its own that does one job after the other."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from consumer.calls import Call
from consumer.contestant import Job
from consumer.ledger import Run
from consumer.workload import NOTHING, Topic, Work

from support.java_peer.java_peer import JavaPeer

REPOSITORY = Path(__file__).parents[3]
CONTESTANT = Path(__file__).parent / "contestant.py"
PATH = [str(REPOSITORY / folder) for folder in ("tests/benchmarks", "tests", "provider")]


class Rival(Protocol):
    """A contestant."""

    def run(self, topic: Topic, work: Work, concurrency: int) -> Run:
        """Handle the records of a topic as a new group."""

    def close(self) -> None:
        """End its process."""


class PythonRival:
    """A contestant of contestant.py. ``records`` is how many of a topic it does; None is all of them."""

    def __init__(self, name: str, interpreter: Path, records: int | None = None) -> None:
        self._name = name
        self._records = records
        self._process = subprocess.Popen(
            [interpreter, CONTESTANT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(PATH)},
        )

    def run(self, topic: Topic, work: Work, concurrency: int) -> Run:
        part = self._records is not None and self._records < topic.records and work.name != NOTHING
        job = Job(
            contestant=self._name,
            bootstrap=topic.config.bootstrap_servers,
            topic=topic.name,
            records=self._records if self._records is not None and part else topic.records,
            concurrency=concurrency,
            work=work.text,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name} has ended in the middle of {work.name}: see its error above")
        answer = json.loads(line)
        calls = [Call(*call) for call in answer["calls"]]
        return topic.ledger.judge(calls, concurrency, cpu_s=answer["cpu_s"], part=part)

    def close(self) -> None:
        self._process.communicate()


class JavaRival:
    """Confluent's Parallel Consumer with its defaults, in a JVM with its own."""

    def __init__(self, bootstrap_servers: str, log: Path) -> None:
        self._peer = JavaPeer(bootstrap_servers, log, options=())

    def run(self, topic: Topic, work: Work, concurrency: int) -> Run:
        outcome = self._peer.bench(topic.name, records=topic.records, concurrency=concurrency, work=work.text)
        return topic.ledger.judge_java(outcome)

    def close(self) -> None:
        self._peer.close()
