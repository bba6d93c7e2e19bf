import sys
import venv
from pathlib import Path

import pytest

from wasmline.build.toolchains import toolchain_for
from wasmline.build.toolchains.cpp import ZigToolchain, sdk_include
from wasmline.errors import ToolchainMissing


@pytest.mark.parametrize("language", ["go", "rust", "javascript"])
def test_languages_that_come_later_are_named(language: str) -> None:
    with pytest.raises(ToolchainMissing, match=f"builds c and cpp; {language} comes later"):
        toolchain_for(language)


def test_a_missing_compiler_is_named_with_the_line_that_installs_it(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    with pytest.raises(ToolchainMissing, match=r"No module named ziglang.* Install: pip install ziglang==") as caught:
        ZigToolchain("cpp", python=str(tmp_path / "bare/bin/python")).version()
    assert caught.value.install.startswith("pip install ziglang==")


def test_another_version_of_the_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang/__init__.py").touch()
    (tmp_path / "ziglang/__main__.py").write_text("print('0.13.0')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ToolchainMissing, match=r"ziglang 0\.13\.0 is installed, 0\.17\.0 is needed"):
        ZigToolchain("cpp", python=sys.executable).version()


def test_the_sdk_is_found() -> None:
    assert (sdk_include() / "wasmline/transform.hpp").is_file()
