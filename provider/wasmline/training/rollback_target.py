"""Chooses the version of a rollback from the decisions on a model; pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from wasmline.errors import Conflict, InvalidRollback
from wasmline.training.promotion_record import Promotion


def recorded_rollback(
    history: Sequence[Promotion], *, version: str | None, run: str, running: set[str]
) -> Promotion | None:
    """Return the decision that a rollback to ``version`` (None: to the champion before) has only to complete; pure.

    It is that of the same ``run``, or the last one, if it is to ``version``, or for None, if deployments run another
    version. Raises Conflict if another decision followed the rollback of ``run``.
    """
    changes = [each for each in history if each.decision != "keep"]
    own = next((each for each in changes if run and each.decision == "rollback" and each.run == run), None)
    if own is not None and own is not changes[-1]:
        raise Conflict(
            f"model {own.model}: decision {changes[-1].number} followed this run's rollback, decision {own.number}. "
            "Look at the history, and start another run",
            name=own.model,
            generation=None,
        )
    if own is not None or not changes or changes[-1].decision != "rollback":
        return own
    last = changes[-1]
    wanted = version == last.version if version else running != {last.version}
    return last if wanted else None


def rolled_back(history: Sequence[Promotion], versions: Collection[str]) -> Promotion | None:
    """Return the rollback that left one of the ``versions`` of a model, unless a later decision returned to one."""
    left = None
    for each in history:
        if each.decision != "keep" and each.version in versions:
            left = None
        elif each.decision == "rollback" and each.champion in versions:
            left = each
    return left


def rollback_target(model: str, history: Sequence[Promotion], version: str | None) -> str:
    """Return the version of a new rollback; pure. By default it is none that was rolled back since its promotion.

    Raises InvalidRollback.
    """
    champion = history[-1].live if history else None
    if champion is None:
        raise InvalidRollback(f"{model} has no champion: no version was promoted", name=model)
    if version == champion:
        raise InvalidRollback(f"{model}@{champion} is the champion: name another version, or deploy it", name=model)
    if version:
        return version
    champions: list[str] = []  # those to return to, the current one last
    for each in history:
        if each.decision == "keep":
            continue
        gone = {each.version}
        if each.decision == "rollback":
            gone.add(each.champion or "")
            if each.version in champions:
                del champions[champions.index(each.version) :]
        champions = [*(known for known in champions if known not in gone), each.version]
    if len(champions) < 2:
        raise InvalidRollback(
            f"{model} has no champion before {champion} that was not rolled back: name a version", name=model
        )
    return champions[-2]
