"""A project's samples: records in ``samples/input.jsonl``, what must come of them in ``samples/expected.jsonl``."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from wasmline.build.cache import write_whole
from wasmline.build.jsonl import complaint, encoded, output_lines, read_batches
from wasmline.build.project import TransformProject
from wasmline.errors import InvalidJsonLine, InvalidProject, SampleMismatch
from wasmline.wasm import TransformRuntime

INPUT = Path("samples", "input.jsonl")
EXPECTED = Path("samples", "expected.jsonl")

_ORDER = ("output", "topic", "key", "value", "headers", "error", "reason", "source", "partition", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleReport:
    """One run of the samples: ``failures`` of the ``records`` were given up by the host, as expected."""

    records: int
    outputs: int
    failures: int


def run_samples(project: TransformProject, wasm: bytes) -> SampleReport:
    """Return normally only if the module makes exactly the expected lines of the sample records.

    The order of keys within a line does not count. Raises SampleMismatch with a unified diff, InvalidProject where
    there are no samples, InvalidJsonLine, and what the runtime raises for a module that does not start.
    """
    wanted = _expected(project)
    actual, report = _run(project, wasm)
    if actual != wanted:
        diff = "\n".join(difflib.unified_diff(wanted, actual, str(EXPECTED), "actual", lineterm=""))
        raise SampleMismatch(
            f"{project.name}: the outputs of {INPUT} are not those of {EXPECTED}; if they are right, "
            "`wasmline test --bless` makes them the expected ones",
            diff=diff,
        )
    return report


def bless(project: TransformProject, wasm: bytes) -> SampleReport:
    """Make what the module does with the sample records the expected outcome."""
    actual, report = _run(project, wasm)
    write_whole(project.output(EXPECTED), "".join(f"{line}\n" for line in actual).encode())
    return report


def _run(project: TransformProject, wasm: bytes) -> tuple[list[str], SampleReport]:
    path = project.folder / INPUT
    if not path.is_file():
        raise _missing(project, path, "put a few records there, one JSON object per line")
    lines: list[str] = []
    records = outputs = failures = 0
    transform = TransformRuntime().compile(wasm)
    with path.open("rb") as stream, transform.instantiate(project.context(), project.limits()) as instance:
        for batch in read_batches(stream, str(path)):
            for result in instance.parts(batch):
                lines += [line.decode().rstrip("\n") for line in output_lines(batch, result, project.output_topics)]
                records += result.rows
                outputs += result.outputs.num_rows
                failures += len(result.failures)
    return lines, SampleReport(records=records, outputs=outputs, failures=failures)


def _expected(project: TransformProject) -> list[str]:
    path = project.folder / EXPECTED
    if not path.is_file():
        raise _missing(project, path, "`wasmline test --bless` writes it from what the module does now")
    lines = path.read_bytes().split(b"\n")  # a string of JSON may hold what else ends a line of text
    return [_canonical(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]


def _canonical(line: bytes, path: Path, number: int) -> str:
    """Return a line with its keys in the order in which outputs are written."""
    try:
        document = msgspec.json.decode(line, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJsonLine(
            f"{path}:{number}: not JSON: {complaint(line, error)}", source=str(path), line=number
        ) from error
    return encoded(_ordered(document)).decode()


def _ordered(document: dict[str, object]) -> dict[str, object]:
    rest = {key: _ordered(value) if isinstance(value, dict) else value for key, value in document.items()}
    return {key: rest.pop(key) for key in _ORDER if key in rest} | rest


def _missing(project: TransformProject, path: Path, remedy: str) -> InvalidProject:
    return InvalidProject(f"{project.name} has no samples: {path} is missing; {remedy}", path=str(path), line=None)
