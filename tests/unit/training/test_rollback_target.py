"""Which version a rollback returns to, and when it only completes one that was recorded."""

from collections.abc import Sequence

import pytest

from wasmline.errors import Conflict, InvalidRollback
from wasmline.training import Metrics, Promotion
from wasmline.training.rollback_target import recorded_rollback, rollback_target, rolled_back

METRICS = Metrics(rows=100, rmse=7.2, mae=5.7, r2=0.4, mean_rmse=9.4, holdout="sha256:aa")


def log(*decisions: str) -> list[Promotion]:
    """Return the log of decisions such as ``promote 1.0.0``; a run is named in a third word."""
    history: list[Promotion] = []
    for number, text in enumerate(decisions, start=1):
        kind, version, *run = text.split()
        history.append(
            Promotion(
                model="eta",
                number=number,
                decision=kind,  # type: ignore[arg-type]
                reason="why",
                version=version,
                champion=history[-1].live if history else None,
                metrics=METRICS,
                champion_metrics=None,
                decided_ms=number,
                run="".join(run),
                spec_version=2 if kind == "rollback" else 1,
            )
        )
    return history


TWO = ("promote 1.0.0", "promote 1.1.0")
BACK = (*TWO, "rollback 1.0.0")


@pytest.mark.parametrize(
    ("decisions", "target"),
    [
        (TWO, "1.0.0"),
        ((*TWO, "keep 1.2.0"), "1.0.0"),
        ((*TWO, "promote 1.2.0"), "1.1.0"),
        ((*TWO, "promote 1.2.0", "rollback 1.1.0"), "1.0.0"),
        ((*TWO, "promote 1.2.0", "rollback 1.0.0", "promote 1.3.0"), "1.0.0"),
        ((*BACK, "promote 1.2.0", "promote 1.3.0"), "1.2.0"),
        ((*TWO, "promote 1.1.0"), "1.0.0"),
        ((*TWO, "promote 1.0.0"), "1.1.0"),
        ((*TWO, "keep 1.2.0", "rollback 1.2.0"), "1.0.0"),
        ((*BACK, "promote 1.1.0"), "1.0.0"),
    ],
)
def test_by_default_it_is_the_champion_before_and_never_one_that_was_rolled_back(
    decisions: Sequence[str], target: str
) -> None:
    assert rollback_target("eta", log(*decisions), None) == target


def test_any_other_version_can_be_named() -> None:
    assert rollback_target("eta", log(*BACK), "1.1.0") == "1.1.0"
    assert rollback_target("eta", log(*TWO, "keep 1.2.0"), "1.2.0") == "1.2.0"


@pytest.mark.parametrize(
    ("decisions", "version", "told"),
    [
        ((), None, "has no champion"),
        (("keep 1.0.0",), "1.0.0", "has no champion"),
        (("promote 1.0.0",), None, r"no champion before 1\.0\.0"),
        (BACK, None, r"no champion before 1\.0\.0"),
        ((*BACK, "rollback 1.1.0"), None, r"no champion before 1\.1\.0"),
        ((*TWO, "promote 1.0.0", "rollback 1.1.0"), None, r"no champion before 1\.1\.0"),
        (TWO, "1.1.0", r"eta@1\.1\.0 is the champion"),
    ],
)
def test_without_a_version_to_return_to_it_is_refused(decisions: Sequence[str], version: str | None, told: str) -> None:
    with pytest.raises(InvalidRollback, match=told):
        rollback_target("eta", log(*decisions), version)


@pytest.mark.parametrize(
    ("decisions", "version", "running", "number"),
    [
        (BACK, None, {"1.1.0"}, 3),
        (BACK, None, {"1.0.0", "1.1.0"}, 3),
        (BACK, None, {"1.0.0"}, None),
        (BACK, "1.0.0", {"1.1.0"}, 3),
        (BACK, "1.0.0", {"1.0.0"}, 3),
        (BACK, "1.1.0", {"1.1.0"}, None),
        ((*BACK, "keep 1.2.0"), None, {"1.1.0"}, 3),
        ((*BACK, "promote 1.2.0"), None, {"1.1.0"}, None),
        (TWO, None, {"1.0.0"}, None),
        ((), None, {"1.0.0"}, None),
    ],
)
def test_a_recorded_rollback_is_completed(
    decisions: Sequence[str], version: str | None, running: set[str], number: int | None
) -> None:
    found = recorded_rollback(log(*decisions), version=version, run="", running=running)
    assert (found.number if found else None) == number


def test_a_run_completes_its_own_rollback_only() -> None:
    history = log(*TWO, "rollback 1.0.0 r1")
    mine = recorded_rollback(history, version=None, run="r1", running={"1.0.0"})
    assert mine == history[-1], "done, and not rolled back once more"
    assert recorded_rollback(history, version=None, run="r2", running={"1.0.0"}) is None


def test_a_run_whose_rollback_was_followed_by_another_decision_changes_nothing() -> None:
    history = log(*TWO, "rollback 1.0.0 r1", "promote 1.2.0")
    with pytest.raises(Conflict, match="decision 4 followed this run's rollback, decision 3"):
        recorded_rollback(history, version=None, run="r1", running={"1.0.0"})


@pytest.mark.parametrize(
    ("decisions", "versions", "left_by"),
    [
        (TWO, {"1.1.0"}, None),
        (BACK, {"1.1.0"}, 3),
        (BACK, {"1.0.0"}, None),
        ((*BACK, "keep 1.1.0"), {"1.1.0"}, 3),
        ((*BACK, "rollback 1.1.0"), {"1.1.0"}, None),
        ((*BACK, "rollback 1.1.0"), {"1.0.0"}, 4),
        ((*BACK, "promote 1.1.0"), {"1.1.0"}, None),
        (BACK, {"1.1.0", "1.2.0"}, 3),
        (BACK, {"1.0.0", "1.1.0"}, None),
        ((*BACK, "rollback 1.2.0"), {"1.1.0", "1.2.0"}, None),
    ],
)
def test_a_version_is_rolled_back_until_a_decision_returns_to_it(
    decisions: Sequence[str], versions: set[str], left_by: int | None
) -> None:
    found = rolled_back(log(*decisions), versions)
    assert (found.number if found else None) == left_by
