import json
from pathlib import Path

import pytest

from wasmline.build import TransformProject, accept_samples, load_project, run_samples
from wasmline.build.samples import EXPECTED, INPUT
from wasmline.errors import InvalidJsonLine, InvalidProject, SampleMismatch
from wasmline.testing import guests

WASM = guests.guest()

FILE = """\
name: same
input-topic: in
output-topics: [out]
language: c
"""


@pytest.fixture
def project(tmp_path: Path) -> TransformProject:
    (tmp_path / "transform.yaml").write_text(FILE)
    (tmp_path / "samples").mkdir()
    (tmp_path / INPUT).write_text('{"value": "a"}\n')
    return load_project(tmp_path)


@pytest.mark.parametrize("value", ["\u2028", "\u2029", "\x85", "\r", "\x0b", "\x1c", "\0"])
def test_what_was_accepted_passes_whatever_ends_a_line_inside_a_string(project: TransformProject, value: str) -> None:
    (project.folder / INPUT).write_text(json.dumps({"value": f"a{value}b"}))
    assert accept_samples(project, WASM) == run_samples(project, WASM)


def test_the_order_of_keys_does_not_count_at_any_depth(project: TransformProject) -> None:
    accept_samples(project, WASM)
    expected = json.loads((project.folder / EXPECTED).read_text())
    expected["source"] = dict(reversed(expected["source"].items()))
    (project.folder / EXPECTED).write_text(json.dumps(dict(reversed(expected.items()))))
    assert run_samples(project, WASM).outputs == 1


@pytest.mark.parametrize("name", [INPUT, EXPECTED])
def test_samples_that_do_not_fit_into_memory_are_refused(project: TransformProject, name: Path) -> None:
    """A file with holes takes no room on the disk."""
    accept_samples(project, WASM)
    with (project.folder / name).open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidProject, match=r"\.jsonl cannot be read: it has more than 67108864 bytes"):
        run_samples(project, WASM)


@pytest.mark.parametrize("name", [INPUT, EXPECTED])
@pytest.mark.parametrize("line", [b"\n", b"{}\n"])
def test_samples_of_more_lines_than_can_be_compared_are_refused(
    project: TransformProject, name: Path, line: bytes
) -> None:
    accept_samples(project, WASM)
    (project.folder / name).write_bytes(line * 1_000_000)
    with pytest.raises(InvalidProject, match="cannot be read: it has more than 1000000 lines: samples are a few"):
        run_samples(project, WASM)


@pytest.mark.parametrize("name", [INPUT, EXPECTED])
@pytest.mark.parametrize("target", ["/proc/self/pagemap", "outside.jsonl"])
def test_samples_outside_of_the_project_are_not_read(
    project: TransformProject, tmp_path_factory: pytest.TempPathFactory, name: Path, target: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "outside.jsonl").write_text('{"value": "secret"}\n')
    accept_samples(project, WASM)
    (project.folder / name).unlink()
    (project.folder / name).symlink_to(outside / target)
    with pytest.raises(InvalidProject, match="leads out of the project"):
        run_samples(project, WASM)


def test_outputs_that_do_not_fit_into_a_file_of_samples_are_refused(project: TransformProject) -> None:
    (project.folder / INPUT).write_text(json.dumps({"value": "\1" * 1_000_000}))
    with pytest.raises(InvalidProject, match="take more than 67108864 bytes"):
        accept_samples(project, guests.guest(guests.WRITE * 12))
    assert not (project.folder / EXPECTED).exists()


def test_of_many_lines_the_first_different_ones_are_shown(project: TransformProject) -> None:
    (project.folder / INPUT).write_text('{"value": "a"}\n' * 5_000)
    accept_samples(project, WASM)
    lines = (project.folder / EXPECTED).read_text().splitlines()
    changed = [line.replace('"a"', '"b"') if at >= 3_000 and at % 2 else line for at, line in enumerate(lines)]
    (project.folder / EXPECTED).write_text("\n".join(changed))
    with pytest.raises(SampleMismatch) as caught:
        run_samples(project, WASM)
    diff = caught.value.diff.splitlines()
    assert diff[0] == f"--- {EXPECTED} from line 3002 on"
    assert len(diff) < 2_100


def test_of_a_long_line_the_beginning_is_shown(project: TransformProject) -> None:
    (project.folder / EXPECTED).write_text(json.dumps({"value": "x" * 1_000_000}))
    with pytest.raises(SampleMismatch) as caught:
        run_samples(project, WASM)
    assert len(caught.value.diff) < 10_000


def test_what_is_in_the_way_of_the_expected_lines_is_named(project: TransformProject) -> None:
    (project.folder / EXPECTED).mkdir()
    with pytest.raises(InvalidProject, match=r"expected\.jsonl cannot be written: Is a directory: remove it"):
        accept_samples(project, WASM)


def test_an_expected_line_that_is_nested_too_deeply_is_named(project: TransformProject) -> None:
    (project.folder / EXPECTED).write_text('{"a":' * 100_000)
    with pytest.raises(InvalidJsonLine, match=r"expected\.jsonl:1: nested too deeply"):
        run_samples(project, WASM)


@pytest.mark.parametrize("line", [b"nonsense", b'{"value": "\xff"}'])
def test_an_expected_line_that_is_not_json_is_named(project: TransformProject, line: bytes) -> None:
    (project.folder / EXPECTED).write_bytes(b"\n\n" + line + b"\n")
    with pytest.raises(InvalidJsonLine, match=r"expected\.jsonl:3: not JSON") as caught:
        run_samples(project, WASM)
    assert caught.value.line == 3
