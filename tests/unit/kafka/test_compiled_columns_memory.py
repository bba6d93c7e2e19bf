"""compiled_columns.c copies each record, and frees what it has, whatever librdkafka and Arrow do in between.

The records of a few fixed seeds; ``tests/fuzz/test_compiled_columns.py`` draws others.
"""

from __future__ import annotations

import pytest

from support.compiled_columns.sanitized_driver import MEMORY, RACES, SanitizedDriver

SEEDS = 400
THREAD_SEEDS = 100


@pytest.fixture(scope="module")
def memory_driver(tmp_path_factory: pytest.TempPathFactory) -> SanitizedDriver:
    return SanitizedDriver.compiled(tmp_path_factory.mktemp("memory"), MEMORY)


@pytest.fixture(scope="module")
def race_driver(tmp_path_factory: pytest.TempPathFactory) -> SanitizedDriver:
    return SanitizedDriver.compiled(tmp_path_factory.mktemp("races"), RACES)


def test_reads_copy_each_record_and_free_all_memory(memory_driver: SanitizedDriver) -> None:
    memory_driver.run("reading", 0, SEEDS)


def test_writes_pass_each_output_and_count_each_answer_once(memory_driver: SanitizedDriver) -> None:
    memory_driver.run("writing", 0, SEEDS)


def test_acknowledgements_come_from_another_thread(memory_driver: SanitizedDriver) -> None:
    memory_driver.run("threads", 0, THREAD_SEEDS)


def test_threads_race_for_nothing(race_driver: SanitizedDriver) -> None:
    race_driver.run("threads", 0, THREAD_SEEDS)
