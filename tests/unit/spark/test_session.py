"""The number of an application's slots while its executors register."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from wasmline.errors import PrerequisiteMissing
from wasmline.spark import session as spark_session
from wasmline.spark.session import local_session, require_same_release, session, settled_slots


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


def test_a_pyspark_of_another_minor_release_than_sparks_jars_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    require_same_release("4.0.4", "4.0.4")
    require_same_release("4.0.4+vendor.1", "4.0.4-vendor-1")
    assert not caplog.text
    with pytest.raises(
        PrerequisiteMissing, match=r"PySpark is 4\.2\.0 and its Spark is 4\.1\.1-vendor-1: pip"
    ) as caught:
        require_same_release("4.2.0", "4.1.1-vendor-1")
    assert caught.value.install.endswith("pyspark==4.1.1")


def test_a_pyspark_of_another_patch_than_sparks_jars_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    require_same_release("4.2.0", "4.2.1.3.5")
    assert "PySpark is 4.2.0 and its Spark is 4.2.1.3.5: pip install" in caplog.text
    assert caplog.text.endswith("pyspark==4.2.1\n")


@pytest.mark.parametrize("make", [lambda: session("app", {}), lambda: local_session("app", [])])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_session_that_is_refused_is_stopped_if_it_is_new(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], object], is_new: bool
) -> None:
    stopped: list[bool] = []
    spark = SimpleNamespace(version="3.5.0", stop=lambda: stopped.append(True))

    class Builder:
        appName = master = config = lambda self, *_: self  # noqa: N815 - Spark's name

        def getOrCreate(self) -> object:  # noqa: N802 - Spark's name
            return spark

    context = SimpleNamespace(
        _active_spark_context=None if is_new else object(), _ensure_initialized=lambda: None
    )  # fmt: skip
    conf = SimpleNamespace(get=lambda name: None, contains=lambda name: False)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setattr(spark_session, "SparkSession", SimpleNamespace(builder=Builder()))
    monkeypatch.setattr(spark_session, "SparkContext", context)
    monkeypatch.setattr(spark_session, "SparkConf", lambda: conf)
    with pytest.raises(PrerequisiteMissing, match=r"its Spark is 3\.5\.0"):
        make()
    assert stopped == ([True] if is_new else [])
