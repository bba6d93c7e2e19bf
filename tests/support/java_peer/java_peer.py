"""Confluent's Parallel Consumer in a JVM of its own, for tests and benchmarks that run it beside ours.

    with JavaPeer(kafka.bootstrap_servers, tmp_path / "java.log") as peer:
        with peer.consumer(topic, group, order="KEY") as consumer:
            consumer.wait(1_000)
        print(consumer.outcome.handed)

The jars come as those of the local Kafka do; the Java sources beside this module are compiled once per content.
"""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urlencode

from wasmline.local import jar_lock, jars
from wasmline.local.jvm import find_java

logger = logging.getLogger(__name__)

SOURCES = Path(__file__).parent
LOCK = SOURCES / "parallel_consumer.lock"
QUICK = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""JVM options for tests: half the time to start. A benchmark gives Java both its compilers and its usual collector."""
LOG_LINES = 20
MASK = 2**64 - 1

Order = Literal["KEY", "PARTITION", "UNORDERED"]
Coordinates = tuple[int, int]
"""The partition and offset of a record."""


class PeerFailed(Exception):
    """The JVM ended, its sources do not compile, or a request ended in an exception."""


def micros(partition: int, offset: int, most: int) -> int:
    """Return the microseconds, 0 to ``most``, that the work ``sleep most`` takes for a record, as Work.java does."""
    mixed = (partition << 48) + offset + 0x9E3779B97F4A7C15 & MASK
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & MASK
    return (mixed ^ mixed >> 31) % (most + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a consumer did. ``handed`` has a record once per hand-out; ``seconds`` are from the first to the last, and
    ``worked`` is the sum of what the work on each record took; ``cpu_s`` is the CPU time of the JVM
    from the first to the end.

    ``out_of_order`` counts records handed out after a later one of their key (under PARTITION: of their partition),
    ``overlapping`` those handed out while another was in flight, ``duplicates`` those that were finished again.
    """

    handed: tuple[Coordinates, ...]
    seconds: float
    worked: float
    cpu_s: float
    out_of_order: int
    overlapping: int
    duplicates: int


class JavaConsumer:
    """A running consumer of a JavaPeer. Leaving its context closes it as ``close`` does."""

    outcome: Outcome
    """Set by ``close``."""

    def __init__(self, peer: JavaPeer, **arguments: str | int) -> None:
        self._peer = peer
        self._name = str(uuid.uuid4())
        self._open = True
        peer.ask("open", name=self._name, **arguments)

    def wait(self, records: int, timeout_s: float = 60) -> int:
        """Wait until that many different records are finished; return how many are: fewer after the time-out."""
        timeout_ms = round(timeout_s * 1000)
        finished: int = self._peer.ask("await", name=self._name, records=records, timeout_ms=timeout_ms)["finished"]
        return finished

    def close(self, *, drain: bool = False) -> Outcome:
        """Finish what is in flight, with ``drain`` all that was fetched, too; commit; leave the group."""
        if self._open:
            self._open = False
            answer = self._peer.ask("close", name=self._name, drain=str(drain).lower())
            handed = tuple((partition, offset) for partition, offset in answer.pop("handed"))
            self.outcome = Outcome(handed=handed, **answer)
        return self.outcome

    def __enter__(self) -> JavaConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class JavaPeer:
    """A JVM with the library, on one broker. It answers one request after the other; not for several threads.

    Raises ArtifactUnavailable or PrerequisiteMissing where the jars or a JDK are not to be had.
    """

    def __init__(self, bootstrap_servers: str, log: Path, *, options: Sequence[str] = QUICK) -> None:
        self._log = log
        options = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", *options)
        command: list[str | Path] = [find_java().path, *options, "-cp", class_path(), "Peer", bootstrap_servers]
        with log.open("wb") as stream:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream, text=True
            )

    def consumer(
        self,
        topic: str,
        group: str,
        *,
        order: Order = "UNORDERED",
        concurrency: int = 16,
        work: str = "none",
        unfinished: Iterable[Coordinates] = (),
        encoding: str | None = None,
        commit_ms: int | None = 1_000,
        buffer: int | None = 100_000,
    ) -> JavaConsumer:
        """Start a consumer of one topic.

        ``work`` is what each record takes: ``none``, ``sleep 5000`` (see ``micros``), ``fixed 1000`` (µs) or
        ``http URL`` (a GET). The records in ``unfinished`` fail, and are not tried again. ``encoding`` forces that
        encoding on every map which the JVM writes until the consumer is closed; None is the library's choice.
        ``commit_ms`` is the interval of synchronous commits, which is also what a close may take: the library misses
        its own wake-up at times. ``buffer`` is how many records may be fetched ahead. For both None is the library's
        default.
        """
        arguments = {"encoding": encoding, "commit_ms": commit_ms, "buffer": buffer}
        return JavaConsumer(
            self,
            topic=topic,
            group=group,
            order=order,
            concurrency=concurrency,
            work=work,
            unfinished=_written(unfinished),
            **{name: value for name, value in arguments.items() if value is not None},
        )

    def bench(self, topic: str, *, records: int, order: Order = "KEY", concurrency: int, work: str) -> Outcome:
        """Return what a new group with the library's defaults did until it had finished that many records."""
        group = f"bench-{uuid.uuid4()}"
        with self.consumer(
            topic, group, order=order, concurrency=concurrency, work=work, commit_ms=None, buffer=None
        ) as consumer:
            finished = consumer.wait(records, timeout_s=300)
        if finished < records:
            raise PeerFailed(f"Java finished {finished} of {records} records of {topic} in 300 s")
        return consumer.outcome

    def committed(self, topic: str, group: str) -> dict[int, tuple[int, str]]:
        """Return what the plain Java client reads of a group's commits: offset and metadata by partition."""
        answer = self.ask("show", topic=topic, group=group)["committed"]
        return {int(partition): (commit["offset"], commit["metadata"]) for partition, commit in answer.items()}

    def commit(self, topic: str, group: str, commits: Mapping[int, tuple[int, str]]) -> None:
        """Commit offset and metadata by partition through the plain Java client, without joining the group."""
        for partition, (offset, metadata) in commits.items():
            self.ask("commit", topic=topic, group=group, at=_written([(partition, offset)]), metadata=metadata)

    def micros(self, records: Collection[Coordinates], most: int) -> list[int]:
        """Return what Java's half of ``micros`` says."""
        answer: list[int] = self.ask("micros", records=_written(records), most=most)["micros"]
        return answer

    def ask(self, command: str, **arguments: str | int) -> dict[str, Any]:
        """Return the answer to one request of Peer.java. Raises PeerFailed with the end of the JVM's log."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(f"{command} {urlencode(arguments)}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the JVM has ended"}
        if "error" in answer:
            end = "\n".join(self._log.read_text(errors="replace").splitlines()[-LOG_LINES:])
            raise PeerFailed(f"{command}: {answer['error']}\n{end}")
        return answer

    def close(self) -> None:
        """End the JVM; consumers that are still open commit nothing."""
        self._process.communicate()

    def __enter__(self) -> JavaPeer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def class_path(folder: Path = SOURCES, lock: Path = LOCK) -> str:
    """Return a lock's jars and the classes of a folder, which are compiled where they are not yet in the cache."""
    jar_set = jar_lock.read(lock)
    libraries = jars.cached(jar_set)
    sources = sorted(folder.glob("*.java"))
    content = "".join(source.name + source.read_text() for source in sources) + jar_set.digest
    classes = jars.jar_cache() / folder.name / hashlib.sha256(content.encode()).hexdigest()[:16]
    if not classes.is_dir():
        _compile(sources, libraries, classes)
    return ":".join(map(str, [*libraries, classes]))


def _compile(sources: list[Path], libraries: list[Path], classes: Path) -> None:
    """Compile into a folder that appears whole. The compiler is a module of the JDK: no javac on the PATH is needed."""
    logger.info("compiling %s into %s", sources[0].parent.name, classes)
    classes.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=classes.parent, prefix="incoming-") as name:
        options = ["--release", "17", "-Xlint:all", "-Werror", "-cp", ":".join(map(str, libraries))]
        compiler: list[str | Path] = [find_java().path, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        built = Path(name) / "classes"
        done = subprocess.run([*compiler, *options, "-d", built, *sources], capture_output=True, text=True)
        if done.returncode:
            what = f"{sources[0].parent.name} does not compile; it takes a JDK >= 17, not a JRE alone"
            raise PeerFailed(f"{what}:\n{done.stderr}")
        try:
            built.rename(classes)
        except OSError:
            if not classes.is_dir():  # else another process was first
                raise


def _written(records: Iterable[Coordinates]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in records)
