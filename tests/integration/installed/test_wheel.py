"""The built wheel in environments of its own, as a user installs it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import wasmline_provider.plugin
from support.installed import environment
from support.installed.environment import REPOSITORY, TEST_DEPENDENCIES, build_wheel, make_environment, variables

pytestmark = pytest.mark.skipif(not environment.UV.exists(), reason="uv is not installed in this environment")

DAG = REPOSITORY / "tests" / "support" / "installed" / "build_test_publish.py"
LOCK = str(REPOSITORY / "requirements.lock")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def output(python: Path, folder: Path, *arguments: str | Path) -> str:
    """Return what a process of an environment says, in a folder without this checkout."""
    command = [python, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=variables(python), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout


def test_the_wheel_without_an_extra_has_the_consumer_and_names_what_is_missing(wheel: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "environment", sys.executable, [str(wheel)], LOCK)
    assert output(python, tmp_path, "-c", "import wasmline.consumer.backends.kafka") == ""
    said = output(python, tmp_path, "-m", "wasmline.cli", "list")
    assert said == "wasmline: wasmtime is not installed: pip install 'wasmline[wasm]'\n"


def test_the_wheel_has_the_compiled_code_of_its_platform(wheel: Path, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "environment", sys.executable, [f"{wheel}[wasm]"], LOCK)
    check = "from wasmline.kafka.compiled_columns import compiled_columns; print(compiled_columns() is not None)"
    assert output(python, tmp_path, "-c", check) == "True\n"


@pytest.mark.parametrize(
    ("target", "tag", "magic"),
    [
        ("linux-aarch64", "manylinux_2_17_aarch64", b"\x7fELF"),
        ("musl-x86_64", "musllinux_1_2_x86_64", b"\x7fELF"),
        ("macos-arm64", "macosx_11_0_arm64", b"\xcf\xfa\xed\xfe"),
        ("other", "any", None),
    ],
)
def test_a_wheel_for_another_platform_is_built_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str, tag: str, magic: bytes | None
) -> None:
    monkeypatch.setenv("WASMLINE_PLATFORM", target)
    built = build_wheel(tmp_path)
    assert built.name.endswith(f"-py3-none-{tag}.whl")
    library = "wasmline/kafka/libcompiled_columns.so.1"
    files = zipfile.ZipFile(built)
    found = files.read(library) if library in files.namelist() else None
    assert (found and found[:4]) == magic


def test_the_wheel_has_the_files_of_the_page(wheel: Path) -> None:
    folder = Path(wasmline_provider.plugin.__file__).parent / "static"
    static = "wasmline_provider/plugin/static/"
    names = zipfile.ZipFile(wheel).namelist()
    served = {each.relative_to(folder).as_posix() for each in folder.rglob("*.*")}
    assert {each.removeprefix(static) for each in names if each.startswith(static)} == served
    assert "page.html" in served


@pytest.mark.long
def test_a_dag_runs_from_the_wheel_with_its_extra_for_airflow(wheel: Path, tmp_path: Path) -> None:
    requirements = [f"{wheel}[airflow,cpp]", *TEST_DEPENDENCIES]
    python = make_environment(tmp_path / "environment", sys.executable, requirements, LOCK)
    test = shutil.copy(DAG, tmp_path / "test_dag.py")
    said = output(python, tmp_path, "-m", "pytest", "-p", "wasmline_provider.testing", test)
    assert "1 passed" in said, said
