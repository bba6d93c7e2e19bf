"""The conformance guests give the same outputs in every mode, with both deliveries, whatever language they are of."""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Message
from pyspark.sql import SparkSession

from support.conformance import EXPECTED, FOLDER, read_bytes
from support.leases.lease_driver import prepare_session
from support.streams.transform_job import TransformJob, make_transform_job
from wasmline import dead_letters
from wasmline.build import load_project
from wasmline.cli import main
from wasmline.kafka import Topics, produce_all, read_to_end
from wasmline.testing.kafka import RunningKafka
from wasmline.wasm import CompiledTransform

REPETITIONS = 30
PARTITIONS = 3

Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Key, value and headers."""
Place = tuple[int, int]
"""A partition and an offset."""

SdkGuest = Callable[[str, str], CompiledTransform]


def read_headers(shown: Iterable[tuple[str, Any]]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, read_bytes(value)) for name, value in shown)


RECORDS = [json.loads(line) for line in (FOLDER / "corpus.jsonl").read_text().splitlines()]
PLACES = [(each.get("partition", 0), each.get("offset", row)) for row, each in enumerate(RECORDS)]


def outcomes() -> Iterator[list[tuple[int, Row]] | None]:
    """Yield what each record of the corpus gives: outputs with the number of their topic, or None where it fails."""
    for place in PLACES:
        found: list[tuple[int, Row]] | None = []
        for line in EXPECTED:
            source = line.get("failed") or line["source"]
            if (source["partition"], source["offset"]) != place:
                continue
            if found is None or "failed" in line:
                found = None
            else:
                row = read_bytes(line["key"]), read_bytes(line["value"]), read_headers(line["headers"])
                found.append((line["output"], row))
        yield found


# librdkafka writes the current time in place of 0.
CORPUS = [
    (record, outcome) for record, outcome in zip(RECORDS, outcomes(), strict=True) if record.get("timestamp") != 0
]


class ConformanceJob:
    """A conformance guest that is deployed, and what it has to give."""

    def __init__(self, job: TransformJob, module: Path) -> None:
        self._job = job
        self._module = module
        second = f"{job.spec.output_topics[0]}.second"
        Topics(job.config).create(second, PARTITIONS)
        self._outputs = (job.spec.output_topics[0], second)
        job.deploy(
            module.read_bytes(),
            output_topics=self._outputs,
            provenance=False,
            max_failure_share=1.0,
            env={"GREETING": "hello"},
        )
        rows = [
            (
                read_bytes(each.get("key")),
                read_bytes(each["value"]),
                list(read_headers(each.get("headers", ()))),
                each.get("timestamp", 1_700_000_000_000),
            )
            for each, _ in CORPUS
        ]
        produce_all(job.config, job.spec.input_topic, rows * REPETITIONS)

    def run(self, mode: str, delivery: str) -> None:
        """Run until the input is done: as ``wasmline worker``, in parallel mode, or in micro-batches."""
        if mode == "worker":
            self._run_worker(delivery)
        elif mode == "parallel":
            self._job.run(mode="parallel", delivery=delivery)
        else:
            shards = 2 if mode == "shards" else None
            self._job.run(delivery=delivery, shards=shards, max_offsets_per_trigger=200)

    def _run_worker(self, delivery: str) -> None:
        spec = self._job.spec
        options = ["--module", str(self._module), "--env", "GREETING=hello", "--no-provenance", "--stop-at-end"]
        options += ["--max-failure-share", "1"]
        options += [word for topic in self._outputs for word in ("--output-topic", topic)]
        options += ["--dead-letter-topic", spec.dead_letter_topic or "", "--delivery", delivery]
        for setting in self._job.config.properties.items():
            options += ["-X", "=".join(setting)]
        ended = CliRunner().invoke(main, ["worker", spec.input_topic, "--group", self._job.job, *options])
        assert ended.exit_code == 0, ended.output

    def check(self) -> None:
        """Compare outputs by topic, in the order of each key, and dead letters by the records that they came from."""
        inputs = sorted(read_to_end(self._job.config, self._job.spec.input_topic), key=place_of)
        expected: list[list[Row]] = [[], []]
        failed: Counter[Place] = Counter()
        known = {input_row(each): outcome for each, outcome in CORPUS}
        for message in inputs:
            outcome = known[row_of(message)]
            if outcome is None:
                failed[place_of(message)] += 1
            for number, row in outcome or ():
                expected[number].append(row)
        for topic, rows in zip(self._outputs, expected, strict=True):
            written = [row_of(each) for each in sorted(read_to_end(self._job.config, topic), key=place_of)]
            assert ordered(written) == ordered(rows)
        letters = Counter(
            (int(headers[dead_letters.SOURCE_PARTITION]), int(headers[dead_letters.SOURCE_OFFSET]))
            for _, headers in self._job.letters()
        )
        assert letters == failed


def input_row(line: dict[str, Any]) -> Row:
    return read_bytes(line.get("key")), read_bytes(line["value"]), read_headers(line.get("headers", ()))


def place_of(message: Message) -> Place:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def row_of(message: Message) -> Row:
    headers: Any = message.headers() or ()
    return message.key(), message.value(), tuple(headers)


def ordered(rows: Iterable[Row]) -> dict[bytes | None, list[Row]]:
    """Return rows by key, in their order; those without a key have none and are sorted."""
    found = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    found[None].sort(key=repr)
    return dict(found)


MODES = ("worker", "parallel", "microbatch", "shards")
SHORT = {
    ("c", "at_least_once", "worker"),
    ("rust", "exactly_once", "parallel"),
    ("cpp", "at_least_once", "microbatch"),
    ("go", "exactly_once", "shards"),
}
CASES = [
    pytest.param(*case, marks=() if case in SHORT else pytest.mark.long)
    for case in itertools.product(("c", "cpp", "go", "rust"), ("at_least_once", "exactly_once"), MODES)
]


@pytest.mark.parametrize(("language", "delivery", "mode"), CASES)
def test_equal_outputs(
    sdk_guest: SdkGuest,
    kafka: RunningKafka,
    spark: SparkSession,
    tmp_path: Path,
    language: str,
    delivery: str,
    mode: str,
) -> None:
    sdk_guest("conformance", language)  # skips without the toolchain
    module = load_project(FOLDER / language).folder / "build" / f"conformance-{language}.wasm"
    prepare_session(spark, kafka.config)
    job = ConformanceJob(make_transform_job(kafka.config, spark, tmp_path, PARTITIONS), module)
    job.run(mode, delivery)
    job.check()
