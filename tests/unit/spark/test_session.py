"""The number of an application's slots while its executors register."""

from collections.abc import Callable, Iterator

import pytest

from wasmline.errors import PrerequisiteMissing
from wasmline.spark.session import require_same_release, settled_slots


def registering(*counts: int) -> Callable[[], int]:
    """Return these counts one after another, and then the last."""
    rest: Iterator[int] = iter(counts)
    last = counts[-1]
    return lambda: next(rest, last)


def test_the_slots_of_executors_that_register_late_are_counted() -> None:
    assert settled_slots(registering(0, 0, 1, 2), 0, pause_s=0.6, timeout_s=60) == 2


def test_the_limit_ends_the_wait() -> None:
    assert settled_slots(registering(0, 2), 2, pause_s=3600, timeout_s=3600) == 2


def test_a_limit_above_what_the_cluster_has_is_not_waited_for() -> None:
    assert settled_slots(registering(0, 1, 2), 64, pause_s=0.6, timeout_s=3600) == 2


def test_a_cluster_without_executors_has_no_slots() -> None:
    assert settled_slots(registering(0), 4, pause_s=0.1, timeout_s=0.5) == 0


def test_a_pyspark_of_another_release_than_sparks_jars_is_refused() -> None:
    require_same_release("4.0.4", "4.0.4")
    require_same_release("4.0.4+vendor.1", "4.0.4-vendor-1")
    with pytest.raises(PrerequisiteMissing, match=r"PySpark is 4\.2\.0 and its Spark is 4\.2\.1: pip install"):
        require_same_release("4.2.0", "4.2.1")
