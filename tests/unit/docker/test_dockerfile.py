"""The Dockerfile: what it installs and copies, held against the project's metadata, its lock and its files."""

import ast
import fnmatch
import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest

from support.containers.compose_file import REPOSITORY, command, read_compose
from support.containers.dockerfile import IGNORE_FILE, Stage, read_stages

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
OURS = re.compile(r"\.\[(?P<extras>[\w,]+)\]")
STAGES = read_stages()


def extras(stage: Stage) -> set[str]:
    """Return the extras that an image has."""
    return {
        extra for each in stage.installs for found in [OURS.match(each[0])] if found for extra in found[1].split(",")
    }


def distributions(stage: Stage) -> set[str]:
    """Return the names of the packages that the project, its extras and the install lines name for an image."""
    named = [name for each in stage.installs for name in each[1:]]
    optional = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *named, *(each for extra in extras(stage) for each in optional[extra])]
    return {re.split(r"[^\w.-]", each)[0].lower() for each in wanted}


@pytest.mark.parametrize("name", ["engine", "airflow"])
def test_an_image_installs_extras_of_the_project_and_packages_of_its_lock(name: str) -> None:
    stage = STAGES[name]
    lock = (REPOSITORY / "requirements.lock").read_text()
    assert extras(stage) <= set(PROJECT["optional-dependencies"])
    assert "--constraints requirements.lock" in " ".join(stage.arguments("RUN"))
    for install in stage.installs:
        assert OURS.fullmatch(install[0])
        assert [package for package in install[1:] if f"\n{package}==" not in lock] == []


def test_only_one_image_has_airflow_and_both_serve_metrics() -> None:
    assert "airflow" not in extras(STAGES["engine"])
    assert extras(STAGES["airflow"]) == {*extras(STAGES["engine"]), "airflow"}
    assert {"metrics", "spark", "training"} <= extras(STAGES["engine"])


def test_spark_is_where_the_images_python_installs_it() -> None:
    version = re.match(r"python:(3\.\d+)\.\d+-", STAGES["engine"].image)
    assert version
    assert STAGES["engine"].environment["SPARK_HOME"] == f"/usr/local/lib/python{version[1]}/site-packages/pyspark"
    assert f"Programming Language :: Python :: {version[1]}" in PROJECT["classifiers"]


@pytest.mark.parametrize("name", ["engine", "airflow"])
def test_what_is_copied_is_there_and_sent_to_the_builder(name: str) -> None:
    lines = [line for line in IGNORE_FILE.read_text().splitlines() if line and not line.startswith("#")]
    sent = {line[1:] for line in lines if line.startswith("!")}
    refused = [line for line in lines if not line.startswith("!")]
    assert refused[0] == "*"
    for text in STAGES[name].arguments("COPY"):
        *sources, _ = text.split()
        for source in sources:
            assert (REPOSITORY / source).exists(), source
            assert Path(source).parts[0] in sent, source
            assert [path for path in folders_and_files(source) for line in refused[1:] if matches(path, line)] == []


def folders_and_files(source: str) -> set[str]:
    """Return the paths of Python files below a folder, and of the folders that they are in."""
    files = [Path(source), *(path.relative_to(REPOSITORY) for path in (REPOSITORY / source).rglob("*.py"))]
    return {str(each) for file in files for each in (file, *file.parents)}


def matches(path: str, pattern: str) -> bool:
    """Return whether a line refuses a path; ``**`` stands for any number of folders."""
    return fnmatch.fnmatch(f"/{path}", f"*/{pattern.removeprefix('**/').replace('**', '*')}")


def test_a_line_that_refuses_a_package_would_be_noticed() -> None:
    assert [path for path in folders_and_files("provider") if matches(path, "**/build")] == ["provider/wasmline/build"]


def test_the_images_are_built_with_every_file_of_the_wheel() -> None:
    targets = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    copied = [text.split()[0] for text in STAGES["base"].arguments("COPY")]
    assert [path for path in targets["wheel"]["force-include"] if not path.startswith(tuple(copied))] == []


def test_the_dags_files_in_the_image_without_airflow_import_what_it_installs() -> None:
    copied = [text.split()[0] for text in STAGES["engine"].arguments("COPY") if text.startswith("dags/")]
    sources = [
        path for each in copied for path in [REPOSITORY / each, *(REPOSITORY / each).rglob("*.py")] if path.is_file()
    ]
    statements = [node for path in sources for node in ast.walk(ast.parse(path.read_text()))]
    modules = {alias.name for node in statements if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in statements if isinstance(node, ast.ImportFrom)}
    owners = importlib.metadata.packages_distributions()
    needed = {owner.lower() for module in modules for owner in owners.get(module.partition(".")[0], ())} - {"wasmline"}
    assert "urllib3" in needed
    assert needed <= distributions(STAGES["engine"])


def test_each_service_of_an_own_image_runs_a_program_that_the_image_has() -> None:
    scripts = {"wasmline", "python", "sh"}
    for name, service in read_compose()["services"].items():
        if service["image"].startswith("wasmline/"):
            program = command(service)[0]
            assert program in scripts, name
            if service["image"].startswith("wasmline/engine"):
                assert "airflow" not in " ".join(command(service)), name
    assert PROJECT["scripts"] == {"wasmline": "wasmline.cli:main"}
