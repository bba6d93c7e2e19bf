"""Tells which DAGs run what an action is about: whoever may edit one may act on it."""

from __future__ import annotations

from collections.abc import Iterable

from wasmline.control import ClusterState, JobView
from wasmline_provider.plugin.actions import ActionRequest
from wasmline_provider.plugin.cluster_documents import started_by


def owning_dags(state: ClusterState, request: ActionRequest) -> list[set[str]]:
    """Return the DAGs of each transform, job and dead-letter topic that a request names; none for what no DAG runs."""
    values = {name: str(each) for name, each in request.model_dump().items() if each is not None}
    owners = [_dags([state.job_of(values[name])]) for name in ("transform", "through") if name in values]
    if "job" in values:
        owners.append(_dags([state.job(values["job"])]))
    if "topic" in values:
        owners.append(_dags(_writers(state, values["topic"])))
    return owners or [set()]


def _dags(views: Iterable[JobView | None]) -> set[str]:
    """Return the DAG that ordered all of some jobs; none where these have several, or one was ordered otherwise."""
    known = [None if view is None else started_by(view) for view in views]
    named = {each["dag_id"] for each in known if each is not None}
    return named if len(named) == 1 and None not in known else set()


def _writers(state: ClusterState, topic: str) -> list[JobView | None]:
    """Return the jobs that write to a dead-letter topic; None for a transform without one."""
    transforms = [name for name, each in state.deployments.items() if each.spec.dead_letter_topic == topic]
    found: list[JobView | None] = [state.job_of(name) for name in transforms]
    for view in state.jobs():
        stream = view.order.spec.stream
        if stream is not None and stream.function is not None and stream.function.dead_letter_topic == topic:
            found.append(view)
    return found
