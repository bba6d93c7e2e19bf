"""A group of processes on a topic of its own, what is done to them, and the books that are kept of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any
from zlib import crc32

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from support import outputs
from support.chaos.call_ledger import Ledger, Left
from support.chaos.consumer_process import POISON
from support.chaos.group_progress import GroupProgress
from support.chaos.operator_decision import abort, hanging_in
from support.rounds import stopped_for_operator
from wasmline.kafka import producer, read_to_end
from wasmline.local import LocalKafka
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import CommittedOffset

WORKER = Path(__file__).with_name("consumer_process.py")
ROOT = Path(__file__).parents[3]

ENDS = (LocalKafka.kill_node, LocalKafka.stop_node)
"""How a broker ends, by turns."""

TIMEOUT_S = 90.0
"""Seconds after which something that has to happen counts as missing."""

SESSION_MS = 3_000
"""How long the group waits for a member that is dead."""

LONG_SESSION_MS = 45_000

QUICK = {
    "heartbeat.interval.ms": "100",
    "reconnect.backoff.max.ms": "500",
    "fetch.wait.max.ms": "50",
    "log_level": "0",
}

WINDOW = 10.0
"""Seconds within which a member has committed what it finished, on a machine that has other things to do, too."""

EXACTLY_ONCE = {"delivery": "exactly_once", "commit_interval_ms": 100}


@dataclass(frozen=True, slots=True)
class Member:
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid


class ConsumerHarness:
    """``options`` are those of every member's consumer; ``orders`` go to its handler (see consumer_process.py).

    ``settings`` are librdkafka's, in place of QUICK and ``session_ms``. Where nobody dies, that may be LONG_SESSION_MS:
    then nobody who is merely slow is taken for dead.
    """

    def __init__(
        self,
        kafka: RunningKafka,
        folder: Path,
        *,
        partitions: int = 4,
        keys: int = 40,
        session_ms: int = SESSION_MS,
        options: Mapping[str, Any] | None = None,
        settings: Mapping[str, str] | None = None,
        **orders: Any,
    ) -> None:
        self.kafka = kafka
        self.topic = kafka.topic(partitions)
        self.output = kafka.topic(2) if orders.pop("writes", False) else None
        self.dead_letters = kafka.topic()
        self.group = f"chaos-{uuid.uuid4()}"
        self.ledger = Ledger(folder / "journal", window=WINDOW)
        self.members: list[Member] = []
        self.random = Random(5)
        self.written: dict[tuple[int, int], bytes] = {}
        self.poison: set[tuple[int, int]] = set()
        self._folder = folder
        self._partitions = partitions
        self._keys = keys
        self._ends: Counter[int] = Counter()
        """How many records each partition has."""
        self._count = 0
        self._is_exact = (options or {}).get("delivery") == "exactly_once"
        self._far: dict[int, int] = {}
        self._producer = producer(kafka.config)
        self._admin = AdminClient(kafka.config.client())
        self._progress = GroupProgress(kafka.config, self.group, self.topic, partitions)
        self._orders = {
            "journal": str(folder / "journal"),
            "output": self.output,
            **orders,
            "options": {
                "topics": [self.topic],
                "group_id": self.group,
                "max_concurrency": 16,
                "commit_interval_ms": 200,
                "dead_letter_topic": self.dead_letters,
                **(options or {}),
                "kafka": {
                    **(settings or {**QUICK, "session.timeout.ms": str(session_ms)}),
                    **kafka.config.properties,
                },
            },
        }

    # -- the records ----------------------------------------------------------------------------------------------

    def produce(self, records: int, *, value: bytes | None = None) -> None:
        """Write records of random keys. Without a ``value``, each has its place for one, as ``expected`` names it."""
        self.write([b"key-%d" % self.random.randrange(self._keys) for _ in range(records)], value=value)

    def write(self, keys: Sequence[bytes], *, value: bytes | None = None) -> None:
        """Write a record of each key; those of a key go to one partition."""

        def delivered(error: Any, message: Any) -> None:
            assert error is None
            where = (message.partition(), message.offset())
            self.written[where] = message.key()
            self.ledger.expect(*where, message.key())
            if value == POISON:
                self.poison.add(where)

        for key in keys:
            partition = crc32(key) % self._partitions
            place = b"%d@%d" % (partition, self._ends[partition])
            self._ends[partition] += 1
            self._producer.produce(self.topic, value or place, key, partition=partition, on_delivery=delivered)
        assert self._producer.flush(TIMEOUT_S) == 0

    # -- the members ----------------------------------------------------------------------------------------------

    def join(self, **orders: Any) -> Member:
        """Start a member."""
        self._count += 1
        log = self._folder / f"member-{self._count}.log"
        path = os.pathsep.join(str(ROOT / each) for each in ("provider", "tests"))
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, str(WORKER), json.dumps({**self._orders, **orders})],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env={**os.environ, "PYTHONPATH": path},
            )
        member = Member(process, log)
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        """Ask a member to leave, and see it leave in order."""
        member.process.terminate()
        try:
            ended = member.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            member.process.send_signal(signal.SIGABRT)  # its log then has what each of its threads was at
            ended = member.process.wait(TIMEOUT_S)
        assert ended in (0, -signal.SIGTERM), member.log.read_text()  # the latter before it was one
        self._gone(member)
        self.ledger.ended(member.pid, None)

    def kill(self, *members: Member) -> None:
        """Kill members where they are."""
        for member in members:
            member.process.kill()
        for member in members:
            member.process.wait()
            self._gone(member)
        left = self.left()
        for member in members:
            self.ledger.ended(member.pid, left)

    def freeze(self, member: Member) -> None:
        """Stop a member, as a laptop lid or a paused virtual machine does."""
        member.process.send_signal(signal.SIGSTOP)
        self.ledger.ended(member.pid, self.left(), comes_back=True)

    def thaw(self, member: Member) -> None:
        """Let a member go on, and see it join again.

        Exactly once, it may have fenced owners before, who learn that from their next commit.
        """
        if self._is_exact:
            self.ledger.reopens(self.left())
        member.process.send_signal(signal.SIGCONT)
        self.settle()
        if self._is_exact:
            self.produce(5 * self._keys)
            self._all_committed()
        self.ledger.heard(member.pid)

    def settle(self) -> None:
        """Wait until all members are in, and the group has shared its partitions out."""
        self.until(self._is_complete, "all members in a group that has settled")

    def await_rebalance(self) -> None:
        """Wait until the group waits for members to join again."""
        self.until(lambda: self._described().state is ConsumerGroupState.PREPARING_REBALANCING, "a rebalance")

    def _is_complete(self) -> bool:
        group = self._described()
        return group.state is ConsumerGroupState.STABLE and len(group.members) == len(self.members)

    def _described(self) -> Any:
        return self._admin.describe_consumer_groups([self.group])[self.group].result(TIMEOUT_S)

    # -- the books ------------------------------------------------------------------------------------------------

    def left(self) -> dict[int, Left]:
        """Return what the broker has of the group's progress; an offset never goes back."""
        left = self._progress.left()
        for partition, (offset, *_) in left.items():
            assert offset >= self._far.get(partition, 0), (
                f"{partition} went back from {self._far[partition]} to {offset}"
            )
            self._far[partition] = offset
        return left

    def committed(self) -> dict[int, tuple[int, str]]:
        """Return offset and metadata by partition, whether or not a transaction is open that may change them."""
        return self._progress.committed()

    def tamper(self, metadata: Sequence[str]) -> None:
        """Replace the metadata of each partition while the group has no member."""
        assert not self.members
        found = self.committed()
        self._progress.commit({each: CommittedOffset(found[each][0], metadata[each]) for each in found})
        self.ledger.forget(self.left())

    def wait(self, records: int) -> None:
        """Wait until so many more records are done, or all."""
        goal = max(0, self.ledger.missing - records)
        self.until(lambda: self.ledger.missing <= goal, f"{records} more records to be done")

    def finish(self) -> None:
        """See all that was written done and committed, and the members leave; then look into the books."""
        self.wait(len(self.written))
        self._all_committed()
        for member in list(self.members):
            self.leave(member)
        self.ledger.read()
        assert not self.ledger.lost()
        assert not self.ledger.wrong, "\n".join(self.ledger.wrong[:20])

    def _all_committed(self) -> None:
        ends = {partition: (end, "") for partition, end in self._ends.items()}
        self.until(lambda: self.committed() == ends, f"commit of everything: {ends}")

    def outputs(self) -> dict[bytes, list[str]]:
        """Return by key what a read_committed reader sees, in order."""
        assert self.output is not None
        return outputs.outputs(self.kafka.config, self.output)

    def expected(self) -> dict[bytes, list[str]]:
        """Return what ``outputs`` is if each record's output is there once and those of a key are in order."""
        return outputs.expected(self.written)

    def require_outputs(self) -> None:
        """See each record's output: once, in the order of its key, or at least once, the first time in that order."""
        found = self.outputs()
        assert (found if self._is_exact else outputs.first_ones(found)) == self.expected()

    def letters(self) -> Counter[tuple[int, int]]:
        """Return how often each record is among the dead letters."""
        found: Counter[tuple[int, int]] = Counter()
        for message in self._read(self.dead_letters):
            headers = dict(message.headers())
            found[int(headers["wasmline.source.partition"]), int(headers["wasmline.source.offset"])] += 1
        return found

    def _read(self, topic: str) -> list[Any]:
        return list(read_to_end(self.kafka.config, topic))

    def close(self) -> None:
        for member in self.members:
            member.process.kill()
            member.process.wait()
            if member.process.stdin:
                member.process.stdin.close()
        self._progress.close()
        self._producer.close()

    def __enter__(self) -> ConsumerHarness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def until(self, happened: Callable[[], object], what: str) -> None:
        """Wait until something has happened; no member may end meanwhile, unless an operator has to decide."""
        seen = False

        def settled() -> bool:
            nonlocal seen
            seen = bool(happened())
            return seen or any(member.process.poll() is not None for member in self.members)

        wait_until(settled, TIMEOUT_S)
        if not seen and self._decided():
            self.until(happened, what)
        elif not seen:
            self.ledger.read()
            logs = {member.log.name: member.log.read_text()[-2_000:] for member in self.members}
            raise AssertionError(f"in vain: {what}; {self.ledger.lost()[:10]}; {self.ledger.wrong[:5]}; {logs}")

    def _decided(self) -> bool:
        """Decide, as an operator, where members ended with HangingTransaction, and start others in their place."""
        ended = [member for member in self.members if member.process.poll() is not None]
        found = [(member, hanging_in(member.log.read_text())) for member in ended]
        for member, hanging in found:
            if hanging is None:
                return False
            stopped_for_operator()
            self._gone(member)
            left = self.left()
            hanging.require_unseen(self.outputs() if self.output else {}, left)
            abort(self.kafka.config, hanging, self.group)
            self.ledger.ended(member.pid, left, hanging=True)
            self.join()
        return bool(found)

    def _gone(self, member: Member) -> None:
        self.members.remove(member)
        if member.process.stdin:
            member.process.stdin.close()
