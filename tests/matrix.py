"""Runs a short set of tests on the built wheel for each supported Airflow, PySpark and Python: ``make matrix``.

Each cell has an environment of its own, of the wheel and what its tests need. Without ``--constraints``, such as the
files that Airflow publishes for its releases, an environment is what uv resolves. A Python that uv cannot find or get
is skipped by name.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from support.installed.environment import (
    REPOSITORY,
    TEST_DEPENDENCIES,
    UV,
    build_wheel,
    make_environment,
    newest,
    variables,
)

AIRFLOWS = ("3.3.0", "newest")
SPARKS = ("4.0", "4.1", "4.2")
PYTHONS = ("3.11", "3.12", "3.13")
LOGS = REPOSITORY / "build" / "matrix"
TESTS = (
    "tests/support/installed/build_test_publish.py",
    "tests/unit/provider/test_provider_info.py",
    "tests/unit/provider/test_spark_hook.py",
    "tests/unit/provider/test_failures.py",
    "tests/unit/local",
    "tests/unit/spark",
    "tests/unit/kafka/test_committed_offset_store.py",
    "tests/integration/spark/test_microbatch.py::test_every_record_arrives_once_in_the_order_of_its_key",
    "tests/integration/spark/test_microbatch_exactly_once.py::test_every_record_arrives_once_in_the_order_of_its_key",
    "tests/integration/spark/test_parallel.py::test_a_transform_is_run_until_caught_up_and_each_record_leaves_once_in_order",
    "tests/integration/spark/test_parallel.py::test_a_driver_that_goes_on_from_a_checkpoint_loses_and_repeats_nothing",
)
OPTIONS = [
    *("-q", "-p", "no:cacheprovider"),
    *("-o", "pythonpath=dags tests tests/support/handlers"),  # without provider: the wheel's is tested
    *("-o", "filterwarnings=default"),  # other releases than the lock's warn of other things
]


def requirements(wheel: Path, airflow: str, spark: str) -> list[str]:
    """Return what a cell installs: pyspark and its client in the newest release that both have."""
    release = newest(f"pyspark-client=={spark}.*")
    extras = "airflow,cpp,metrics,spark,training"
    pins = [f"apache-airflow=={airflow}", f"pyspark=={release}", f"pyspark-client=={release}"]
    return [f"{wheel}[{extras}]", *pins, *TEST_DEPENDENCIES]


def succeeds(*command: str | Path) -> bool:
    """Return whether a command ends with status 0."""
    return subprocess.run(command, capture_output=True).returncode == 0


def tested(wheel: Path, cell: tuple[str, str, str], constraints: str) -> str:
    """Return the result of a cell: passed, failed or skipped, and why."""
    airflow, spark, python = cell
    if not any(succeeds(UV, "python", verb, "--no-config", python) for verb in ("find", "install")):
        return f"skipped: there is no Python {python} here, and uv cannot get one"
    log = LOGS / f"airflow-{airflow}_spark-{spark}_python-{python}.log"
    with TemporaryDirectory(prefix="wasmline-matrix-") as folder:
        try:
            limits = constraints.format(airflow=airflow, python=python)
            interpreter = make_environment(Path(folder), python, requirements(wheel, airflow, spark), limits)
        except RuntimeError as error:
            log.write_text(str(error))
            return f"failed: no environment, see {log.relative_to(REPOSITORY)}"
        with log.open("w") as stream:
            command: list[str | Path] = [interpreter, "-m", "pytest", *OPTIONS, *TESTS]
            status = subprocess.run(command, cwd=REPOSITORY, env=variables(interpreter), stdout=stream, stderr=stream)
    summary = log.read_text().splitlines()[-1]
    return f"passed: {summary}" if status.returncode == 0 else f"failed: {summary}, see {log.relative_to(REPOSITORY)}"


@click.command()
@click.option("--airflow", "airflows", multiple=True, default=AIRFLOWS, help="Only this release.")
@click.option("--spark", "sparks", multiple=True, default=SPARKS, help="Only this minor release.")
@click.option("--python", "pythons", multiple=True, default=PYTHONS, help="Only this minor release.")
@click.option("--constraints", default="", help="A file or URL with {airflow} and {python} in it.")
def main(airflows: tuple[str, ...], sparks: tuple[str, ...], pythons: tuple[str, ...], constraints: str) -> None:
    """Test the cells one after another, and end with status 1 unless some passed and none failed."""
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    click.echo(f"constraints: {constraints or 'none, each cell is what uv resolves'}")
    releases = [newest("apache-airflow>=3.3,<4") if each == "newest" else each for each in airflows]
    results = []
    with TemporaryDirectory(prefix="wasmline-wheel-") as folder:
        wheel = build_wheel(Path(folder))
        for cell in product(releases, sparks, pythons):
            begun = time.monotonic()
            results.append(tested(wheel, cell, constraints))
            click.echo(
                "Airflow {} PySpark {} Python {}: ".format(*cell) + f"{results[-1]} ({time.monotonic() - begun:.0f} s)"
            )
    kinds = {each.partition(":")[0] for each in results}
    sys.exit(0 if "passed" in kinds and "failed" not in kinds else 1)


if __name__ == "__main__":
    main()
