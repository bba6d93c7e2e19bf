"""Random records and failures for compiled_columns.c, under the sanitizers of a C compiler.

FUZZ_SEED: the first seed, for one that has failed. What threads do is not the seed's alone.
"""

from __future__ import annotations

import os
import random

import pytest

from support.compiled_columns.sanitized_driver import MEMORY, RACES, SanitizedDriver

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "300"))
"""Seeds of each kind."""


@pytest.fixture(scope="module")
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SanitizedDriver:
    return SanitizedDriver.compiled(tmp_path_factory.mktemp("driver"), request.param)


@pytest.mark.parametrize(
    ("driver", "mode"),
    [(MEMORY, "reading"), (MEMORY, "writing"), (MEMORY, "threads"), (RACES, "threads")],
    indirect=["driver"],
    ids=["reading", "writing", "threads", "races of threads"],
)
def test_records_and_answers_arrive_as_they_are(driver: SanitizedDriver, mode: str) -> None:
    driver.run(mode, int(os.environ.get("FUZZ_SEED", random.randrange(2**32))), EXAMPLES)
