"""What the images install, installed into an environment of its own: the programs of the services are in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.containers.dockerfile import read_stages
from support.installed.environment import REPOSITORY, UV, make_environment, run, variables

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not UV.exists(), reason="uv is not installed in this environment"),
]

LOCK = REPOSITORY / "requirements.lock"


def test_the_install_lines_give_each_image_the_programs_of_its_services(tmp_path: Path) -> None:
    engine, airflow = read_stages()["airflow"].installs
    python = make_environment(tmp_path / "environment", sys.executable, engine, str(LOCK))
    for program in ("launcher", "worker"):
        assert f"Usage: wasmline {program} " in said(python, "wasmline", program, "--help")
    imports = "import matplotlib, prometheus_client, pyspark, urllib3, xgboost, ziglang"
    assert said(python, "python", "-c", f"{imports}; import wasmline.spark.prometheus") == ""

    run(UV, "pip", "install", "--quiet", "--no-config", "--python", python, "--constraints", LOCK, *airflow)
    run(UV, "pip", "check", "--no-config", "--python", python)
    assert said(python, "python", "-c", "import s3fs, wasmline_provider.operators.stream") == ""
    assert "usage: airflow standalone" in said(python, "airflow", "standalone", "--help").lower()


def said(python: Path, program: str, *arguments: str) -> str:
    """Return the output of a program of an environment, in a folder without this checkout."""
    command = [str(python.with_name(program)), *arguments]
    environment = {**variables(python), "AIRFLOW_HOME": str(python.parents[1] / "airflow")}
    done = subprocess.run(command, cwd=python.parent, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout
