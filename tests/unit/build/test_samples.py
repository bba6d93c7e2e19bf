import json
from pathlib import Path

import pytest

from wasmline.build import TransformProject, bless, load_project, run_samples
from wasmline.build.samples import EXPECTED, INPUT
from wasmline.errors import InvalidJsonLine
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
def test_what_was_blessed_passes_whatever_ends_a_line_inside_a_string(project: TransformProject, value: str) -> None:
    (project.folder / INPUT).write_text(json.dumps({"value": f"a{value}b"}))
    assert bless(project, WASM) == run_samples(project, WASM)


def test_the_order_of_keys_does_not_count_at_any_depth(project: TransformProject) -> None:
    bless(project, WASM)
    expected = json.loads((project.folder / EXPECTED).read_text())
    expected["source"] = dict(reversed(expected["source"].items()))
    (project.folder / EXPECTED).write_text(json.dumps(dict(reversed(expected.items()))))
    assert run_samples(project, WASM).outputs == 1


@pytest.mark.parametrize("line", [b"nonsense", b'{"value": "\xff"}'])
def test_an_expected_line_that_is_not_json_is_named(project: TransformProject, line: bytes) -> None:
    (project.folder / EXPECTED).write_bytes(b"\n\n" + line + b"\n")
    with pytest.raises(InvalidJsonLine, match=r"expected\.jsonl:3: not JSON") as caught:
        run_samples(project, WASM)
    assert caught.value.line == 3
