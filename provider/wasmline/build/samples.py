"""A project's samples: records in ``samples/input.jsonl``, expected outputs in ``samples/expected.jsonl``."""

from __future__ import annotations

import difflib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from wasmline.build.bounded_read import read_project_file
from wasmline.build.cache import write_whole
from wasmline.build.jsonl import complaint, encoded, output_lines, read_batches
from wasmline.build.project import TransformProject
from wasmline.errors import InvalidJsonLine, InvalidProject, SampleMismatch
from wasmline.wasm import TransformRuntime

INPUT = Path("samples", "input.jsonl")
EXPECTED = Path("samples", "expected.jsonl")
MAX_FILE_BYTES = 64 << 20
"""A larger file of samples is rejected: it is read into memory."""
MAX_LINES = 1_000_000
"""A file of more lines is rejected: each one takes memory and time."""
MAX_DIFF_LINES = 1_000
MAX_DIFF_LETTERS = 4_096
"""Maximum letters of a line of a diff; the rest is not shown."""

_ORDER = ("output", "topic", "key", "value", "headers", "error", "reason", "source", "partition", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleReport:
    """One run of the samples: ``failures`` of the ``records`` were dead-lettered by the host, as expected."""

    records: int
    outputs: int
    failures: int


def run_samples(project: TransformProject, wasm: bytes) -> SampleReport:
    """Run the samples and compare the outputs line by line with the expected ones.

    The order of keys within a line does not count. Raises SampleMismatch with a unified diff, InvalidProject if there
    are no samples, InvalidJsonLine, and the runtime's errors for a module that does not start.
    """
    wanted = _expected(project)
    actual, report = _run(project, wasm)
    if actual != wanted:
        diff = "\n".join(line[:MAX_DIFF_LETTERS] for line in _difference(wanted, actual))
        raise SampleMismatch(
            f"{project.name}: the outputs of {INPUT} are not those of {EXPECTED}; if they are right, "
            "`wasmline test --accept` makes them the expected ones",
            diff=diff,
        )
    return report


def accept_samples(project: TransformProject, wasm: bytes) -> SampleReport:
    """Write the module's outputs for the sample records as the expected ones."""
    actual, report = _run(project, wasm)
    path = project.output(EXPECTED)
    try:
        write_whole(path, "".join(f"{line}\n" for line in actual).encode())
    except OSError as error:
        raise InvalidProject(
            f"{path} cannot be written: {error.strerror}: remove it, or allow to write to its folder",
            path=str(path),
            line=None,
        ) from error
    return report


def _run(project: TransformProject, wasm: bytes) -> tuple[list[str], SampleReport]:
    path, content = _file(project, INPUT, "put a few records there, one JSON object per line")
    lines: list[str] = []
    records = outputs = failures = size = 0
    transform = TransformRuntime().compile(wasm)
    with io.BytesIO(content) as stream, transform.instantiate(project.context(), project.limits()) as instance:
        for batch in read_batches(stream, str(path)):
            for result in instance.parts(batch):
                for line in output_lines(batch, result, project.output_topics):
                    size += len(line)
                    if size > MAX_FILE_BYTES:
                        raise InvalidProject(
                            f"the outputs of {path} take more than {MAX_FILE_BYTES} bytes: samples are a few records",
                            path=str(path),
                            line=None,
                        )
                    lines.append(line.decode().rstrip("\n"))
                records += result.rows
                outputs += result.outputs.num_rows
                failures += len(result.failures)
    return lines, SampleReport(records=records, outputs=outputs, failures=failures)


def _expected(project: TransformProject) -> list[str]:
    path, content = _file(project, EXPECTED, "`wasmline test --accept` writes it from what the module does now")
    lines = content.split(b"\n")  # a JSON string may contain other line separators
    return [_canonical(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]


def _canonical(line: bytes, path: Path, number: int) -> str:
    """Return a line with its keys in the order of written outputs."""
    try:
        return encoded(_ordered(msgspec.json.decode(line, type=dict[str, object]))).decode()
    except RecursionError as error:
        raise InvalidJsonLine(f"{path}:{number}: nested too deeply", source=str(path), line=number) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidJsonLine(
            f"{path}:{number}: not JSON: {complaint(line, error)}", source=str(path), line=number
        ) from error


def _ordered(document: dict[str, object]) -> dict[str, object]:
    rest = {key: _ordered(value) if isinstance(value, dict) else value for key, value in document.items()}
    return {key: rest.pop(key) for key in _ORDER if key in rest} | rest


def _difference(wanted: list[str], actual: list[str]) -> Iterator[str]:
    """Yield a unified diff: of long lists, only of the lines from the first difference on."""
    start, end = 0, max(len(wanted), len(actual))
    if end > MAX_DIFF_LINES:
        same = (at for at, (one, other) in enumerate(zip(wanted, actual, strict=False)) if one != other)
        start = next(same, min(len(wanted), len(actual)))
        end = start + MAX_DIFF_LINES
    names = (str(EXPECTED), "actual") if not start else (f"{EXPECTED} from line {start + 1} on", "actual")
    return difflib.unified_diff(wanted[start:end], actual[start:end], *names, lineterm="")


def _file(project: TransformProject, name: Path, remedy: str) -> tuple[Path, bytes]:
    """Return the path of a file of samples and its content."""
    path = project.folder / name
    if not path.is_file():
        raise InvalidProject(f"{project.name} has no samples: {path} is missing; {remedy}", path=str(path), line=None)
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(project.folder)):
        raise InvalidProject(
            f"{path} is a link that leads out of the project: copy the file", path=str(path), line=None
        )
    try:
        content = read_project_file(path, MAX_FILE_BYTES)
        if content.count(b"\n") >= MAX_LINES:
            raise OSError(f"it has more than {MAX_LINES} lines")
        return path, content
    except OSError as error:
        raise InvalidProject(
            f"{path} cannot be read: {error}: samples are a few records", path=str(path), line=None
        ) from error
