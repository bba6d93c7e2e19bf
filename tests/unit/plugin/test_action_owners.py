"""The DAGs whose editors may act on something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from unit.control.test_cluster_state import Cluster, deployment, order
from wasmline.control import ChangeCause
from wasmline_provider.plugin.action_owners import owning_dags
from wasmline_provider.plugin.actions import ActionRequest, PauseRequest, RedriveRequest, RollbackRequest, StopRequest


@pytest.fixture
def cluster() -> Cluster:
    """Two transforms, whose jobs two DAGs have ordered, and a third one without a job."""
    cluster = Cluster()
    for name in ("eta", "fare", "idle"):
        cluster.deploy(deployment(name))
    for name in ("eta", "fare"):
        cluster.order(order(f"{name}-job", name, cause=ChangeCause(run=f"{name}-dag/run-1/stream")))
    return cluster


@pytest.mark.parametrize(
    ("request_", "owners"),
    [
        (PauseRequest(transform="eta"), [{"eta-dag"}]),
        (PauseRequest(job="fare-job"), [{"fare-dag"}]),
        (PauseRequest(transform="eta", job="fare-job"), [{"eta-dag"}, {"fare-dag"}]),
        (RollbackRequest(transform="idle"), [set()]),
        (RollbackRequest(transform="unknown"), [set()]),
        (StopRequest(job="unknown"), [set()]),
        (RedriveRequest(topic="eta.dlq"), [{"eta-dag"}]),
        (RedriveRequest(topic="fare.dlq", transform="eta"), [{"eta-dag"}, {"fare-dag"}]),
        (RedriveRequest(topic="eta.dlq", through="fare"), [{"fare-dag"}, {"eta-dag"}]),
        (RedriveRequest(topic="unknown"), [set()]),
        (RedriveRequest(topic="idle.dlq"), [set()]),
        (PauseRequest(), [set()]),
    ],
)
def test_each_thing_that_a_request_names_has_its_own_owners(
    cluster: Cluster, request_: ActionRequest, owners: list[set[str]]
) -> None:
    assert owning_dags(cluster.state, request_) == owners


def test_a_topic_of_two_transforms_belongs_to_neither_dag(cluster: Cluster) -> None:
    shared = replace(deployment("fare").spec, dead_letter_topic="eta.dlq")
    cluster.deploy(deployment("fare", spec=shared))
    assert owning_dags(cluster.state, RedriveRequest(topic="eta.dlq")) == [set()]


@pytest.mark.parametrize("run", ["", "page", "dag/run-1", "/run/task"])
def test_a_job_that_no_task_has_ordered_belongs_to_no_dag(cluster: Cluster, run: str) -> None:
    cluster.order(order("eta-job", "eta", cause=ChangeCause(run=run)))
    assert owning_dags(cluster.state, StopRequest(job="eta-job")) == [set()]
