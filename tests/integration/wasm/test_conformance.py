"""The same transform in every language gives the same: through the engine, through `wasmline run` and through Spark."""

import json
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from support.conformance import EXPECTED, FOLDER, read_bytes
from wasmline import dead_letters
from wasmline.build import load_project
from wasmline.build.jsonl import output_lines, read_batches
from wasmline.control import Deployment, DeploymentSpec
from wasmline.pipeline import BatchStats
from wasmline.spark.microbatch.task import INPUT_COLUMNS, SINK_COLUMNS, BatchStatsParam, TransformTask
from wasmline.wasm import CompiledTransform, ResourceLimits, TransformContext

CORPUS = (FOLDER / "corpus.jsonl").read_bytes()
LOGGED = (FOLDER / "logs.txt").read_text()

TOPICS = ("conformance.first", "conformance.second")
CONTEXT = TransformContext(
    name="conformance", input_topic="conformance.input", output_topics=TOPICS, env={"GREETING": "hello"}
)

SdkGuest = Callable[[str, str], CompiledTransform]
LANGUAGES = pytest.mark.parametrize("language", ["c", "cpp", "go", "rust"])


def outcome(lines: bytes) -> list[dict[str, Any]]:
    """Return JSON Lines in the corpus' form: how a record fails is its language's own."""
    parsed = [json.loads(line) for line in lines.splitlines()]
    return [{"failed": line["source"]} if "error" in line else line for line in parsed]


@LANGUAGES
@pytest.mark.parametrize("rows", [1, 7, 1_000])
def test_through_the_engine(sdk_guest: SdkGuest, language: str, rows: int) -> None:
    (corpus,) = read_batches(BytesIO(CORPUS), "corpus")
    lines, logged = b"", ""
    with sdk_guest("conformance", language).instantiate(CONTEXT, ResourceLimits()) as instance:
        for first in range(0, corpus.num_rows, rows):
            batch = corpus.slice(first, rows)
            result = instance.transform(batch)
            lines += b"".join(output_lines(batch, result, TOPICS))
            failed = {failure.row for failure in result.failures}
            logged += "".join(line.text for line in result.logs if line.row not in failed)
    assert outcome(lines) == EXPECTED
    assert logged == LOGGED


@LANGUAGES
def test_through_the_command_line(sdk_guest: SdkGuest, language: str, tmp_path: Path) -> None:
    sdk_guest("conformance", language)  # skips without the toolchain
    module = load_project(FOLDER / language).folder / "build" / f"conformance-{language}.wasm"
    topics = [word for topic in TOPICS for word in ("--output-topic", topic)]
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "wasmline.cli",
            "run",
            str(module),
            *topics,
            "--env",
            "GREETING=hello",
            "--logs",
            "logs",
        ],
        cwd=tmp_path,
        input=CORPUS,
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, outcome(ended.stdout)) == (3, EXPECTED), ended.stderr
    assert (tmp_path / "logs").read_text().startswith(LOGGED)


@LANGUAGES
def test_through_spark(sdk_guest: SdkGuest, language: str, spark: SparkSession) -> None:
    digest = sdk_guest("conformance", language).digest
    spec = DeploymentSpec(
        name="conformance",
        version="1.0.0",
        digest=digest,
        input_topic="conformance.input",
        output_topics=TOPICS,
        dead_letter_topic="conformance.dlq",
        provenance=False,
        env={"GREETING": "hello"},
    )
    tally = spark.sparkContext.accumulator(BatchStats(), BatchStatsParam())
    module = FOLDER / language / "build" / f"conformance-{language}.wasm"
    task = TransformTask(
        deployment=Deployment(spec=spec, generation=1, state="running", updated_ms=0),
        module=spark.sparkContext.broadcast(module.read_bytes()),
        stats=tally,
    )
    (corpus,) = read_batches(BytesIO(CORPUS), "corpus")
    rows = spark.createDataFrame(pa.Table.from_batches([corpus])).coalesce(1)
    written = rows.selectExpr(*INPUT_COLUMNS).mapInArrow(task, SINK_COLUMNS).collect()

    outputs = [
        (
            line["topic"],
            read_bytes(line["key"]),
            read_bytes(line["value"]),
            [(key, read_bytes(value)) for key, value in line["headers"]],
        )
        for line in EXPECTED
        if "failed" not in line
    ]
    assert [
        (row.topic, row.key, row.value, [(header.key, header.value) for header in row.headers or ()])
        for row in written[: len(outputs)]
    ] == outputs
    letters = [{header.key: header.value for header in row.headers} for row in written[len(outputs) :]]
    assert [(int(h[dead_letters.SOURCE_PARTITION]), int(h[dead_letters.SOURCE_OFFSET])) for h in letters] == [
        (line["failed"]["partition"], line["failed"]["offset"]) for line in EXPECTED if "failed" in line
    ]
    assert "".join(f"{line.partition(' ')[2]}\n" for line in tally.value.logs).startswith(LOGGED)
