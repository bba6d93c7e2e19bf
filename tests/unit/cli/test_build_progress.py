"""A build for a command says what is waited for."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wasmline.build import TransformProject
from wasmline.cli import build_progress


@pytest.mark.parametrize(("seconds", "told"), [(0.0, 0), (0.5, 1)])
def test_a_build_that_takes_long_is_told_of_where_nobody_watches_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, seconds: float, told: int
) -> None:
    module = tmp_path / "module.wasm"
    module.write_bytes(b"built")

    def build(project: TransformProject, **_: Any) -> SimpleNamespace:
        time.sleep(seconds)
        return SimpleNamespace(path=module)

    monkeypatch.setattr(build_progress, "build_project", build)
    monkeypatch.setattr(build_progress, "SILENCE_S", 0.1)
    project: Any = SimpleNamespace(name="shout")
    assert build_progress.built(project)[1] == b"built"
    assert capsys.readouterr().err.count("building shout") == told
