from __future__ import annotations

import os
from collections.abc import Generator

import hypothesis
import pytest

from support import file_order, rounds
from support.machine_stalls import MachineStalls, rerun_after_stalls
from support.short_lived_jvms import JDK_JAVA_OPTIONS
from wasmline.local.cds_archive import cds_archive_options

pytest_plugins = [
    "support.crash_tracebacks",
    "support.file_scheduling",
    "wasmline.testing.kafka",
    "wasmline.testing.spark",
    "wasmline_provider.testing",
]


KAFKA_FIXTURES = {"kafka", "kafka_cluster", "secured_kafka", "stoppable_kafka", "real_cluster", "spark"}

TESTS_WITHOUT_SERVICES = {"unit", "property", "architecture", "contract", "simulation"}

if "WASMLINE_LONG" not in os.environ:
    os.environ.setdefault("JDK_JAVA_OPTIONS", JDK_JAVA_OPTIONS)  # most of the suite's CPU time is that of JVMs
    os.environ.setdefault("SPARK_SUBMIT_OPTS", cds_archive_options())

STALLS = MachineStalls()

hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    STALLS.begin()


@pytest.fixture
def machine_stalls() -> MachineStalls:
    """Tell whether the machine stood still, for tests that are never run again for that."""
    return STALLS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start a Kafka or a Spark, order the files, and rerun what fails while the machine stalls."""
    for item in items:
        if "WASMLINE_LONG" not in os.environ and item.get_closest_marker("long"):
            item.add_marker(
                pytest.mark.skip(reason="of the long form: make test-long, and what make help lists beside it")
            )
        if "property" in item.nodeid.split("/"):
            # Hypothesis would run the example again that the signal of a time-out has ended, and hang there.
            item.add_marker(pytest.mark.timeout(method="thread"))
        if isinstance(item, pytest.Function):
            callspec = getattr(item, "callspec", None)
            given = {each for each in callspec.params.values() if isinstance(each, str)} if callspec else set()
            if "kafka" in given or KAFKA_FIXTURES.intersection(item.fixturenames):
                item.add_marker("kafka")
    file_order.alternate(items)
    repeated = (item for item in items if _has_time_limits(item) and not item.get_closest_marker("never_rerun"))
    rerun_after_stalls(repeated, STALLS)


def _has_time_limits(item: pytest.Item) -> bool:
    """Return whether a test starts services, whose requests and sessions time out."""
    return item.get_closest_marker("kafka") is not None or TESTS_WITHOUT_SERVICES.isdisjoint(item.nodeid.split("/"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    rounds.pass_on(report)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    rounds.collect(report)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many rounds of what a long run went through."""
    if "CHAOS_ROUNDS" in os.environ:
        terminalreporter.section("rounds")
        for line in rounds.summary():
            terminalreporter.write_line(line)
