"""The page on a real cluster: what it shows, and what its actions do there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from integration.plugin.conftest import WAIT_S, PageClient
from support.streams.identity_transform import deploy_identity
from support.streams.transform_job import unique
from wasmline import dead_letters
from wasmline.clock import now_ms
from wasmline.control import (
    ChangeCause,
    DeploymentSpec,
    DeploymentTopic,
    HistoryTopic,
    JobTopic,
    StatusTopic,
    deploy,
    read_job_events,
)
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import Topics, produce_all, read_to_end
from wasmline.local.process import wait_until
from wasmline.partition_status import PartitionStatus
from wasmline.redrive import DeadLetterReader
from wasmline.registry import ArtifactMetadata, FilesystemRegistry
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition


@pytest.fixture
def registry(tmp_path: Path) -> FilesystemRegistry:
    return FilesystemRegistry(str(tmp_path / "registry"))


@pytest.fixture
def deployed(kafka: RunningKafka) -> DeploymentSpec:
    """A transform with a dead-letter topic, in its second generation."""
    topic = f"{unique('letters')}.dlq"
    Topics(kafka.config).create(topic, 1)
    spec = replace(deploy_identity(kafka.config, partitions=1), dead_letter_topic=topic, version="2.0.0")
    deploy(kafka.config, spec, guest(), cause=ChangeCause(reason="faster", by="ann", run="deploy/run-2"))
    return spec


@pytest.fixture
def job(kafka: RunningKafka, deployed: DeploymentSpec) -> Iterator[str]:
    """A job that runs it, ordered by a task, whose driver reports."""
    spec = JobSpec(
        job=f"{deployed.name}-job",
        run="run-1",
        storage="/s",
        stream=StreamSpec(transform=deployed.name, trigger_interval="1 second"),
    )
    with closing(JobTopic(kafka.config)) as jobs, closing(StatusTopic(kafka.config)) as statuses:
        jobs.submit(spec, cause=ChangeCause(by="ann", run="streams/run-7/stream"))
        jobs.write_report(JobReport.now(spec.job, spec.run, JobState.RUNNING))
        statuses.write([status(deployed, spec.job, 0)])
        yield spec.job


def status(spec: DeploymentSpec, job: str, partition: int, **changes: Any) -> PartitionStatus:
    fields: dict[str, Any] = {"offset": 0, "lag": 0, "rate": 4.0, "since_offset": 0, **changes}
    return PartitionStatus(
        job=job, transform=spec.name, topic=spec.input_topic, partition=partition, digest=spec.digest, generation=2,
        state="running", updated_ms=now_ms(), **fields,
    )  # fmt: skip


def put_dead_letters(kafka: RunningKafka, spec: DeploymentSpec, count: int) -> None:
    produce_all(kafka.config, spec.input_topic, [(b"k", b"<b>record</b>", [("h", b"\xff")], None)] * count)
    headers = [
        *dead_letters.failure(error="GuestTrap", reason="unreachable"),
        *dead_letters.origin(transform=f"{spec.name}@2.0.0", digest=spec.digest),
        *dead_letters.coordinates(TopicPartition(spec.input_topic, 0), 0),
    ]
    assert spec.dead_letter_topic
    letters = [(b"k", b"<b>%d</b>" % each, headers, None) for each in range(count)]
    produce_all(kafka.config, spec.dead_letter_topic, letters)


def test_a_transform_is_shown_with_its_job_and_its_lag(
    kafka: RunningKafka, open_page: Callable[..., PageClient], deployed: DeploymentSpec, job: str
) -> None:
    page = open_page(kafka, "viewer")
    row = page.row(deployed.name, job=job, condition="running", running=1)
    assert (row["version"], row["generation"], row["partitions"], row["rate"]) == ("2.0.0", 2, 1, 4.0)
    produce_all(kafka.config, deployed.input_topic, [(b"k", b"v", None, None)] * 30)
    assert page.row(deployed.name, lag=30)
    known = page.row(job, "jobs")
    assert known["started_by"] == {"dag_id": "streams", "run_id": "run-7", "task_id": "stream"}
    details = page.get(f"transforms/{deployed.name}")
    newest = details["generations"][0]
    assert (newest["number"], newest["state"], details["generations"][1]["state"]) == (2, "running", "replaced")
    assert [(each["by"], each["run"], each["reason"]) for each in newest["changes"]] == [
        ("ann", "deploy/run-2", "faster")
    ]
    assert [each["partition"] for each in page.get(f"jobs/{job}")["partitions"]] == [0]
    run = page.get("runs/streams/run-7")
    assert ([each["job"] for each in run["jobs"]], [each["name"] for each in run["transforms"]]) == (
        [job],
        [deployed.name],
    )
    assert page.get("lines")["transforms"][deployed.name]["rate"][-1] is not None


def test_a_mapped_task_is_shown_with_its_own_jobs(
    kafka: RunningKafka, open_page: Callable[..., PageClient], deployed: DeploymentSpec
) -> None:
    page = open_page(kafka)
    with closing(JobTopic(kafka.config)) as jobs:
        for index in (1, 11):
            spec = JobSpec(
                job=f"{deployed.name}-{index}", run="r", storage="/s", stream=StreamSpec(transform=f"t{index}")
            )
            jobs.submit(spec, cause=ChangeCause(run=f"mapped/run-1/stream/{index}"))

    def shown(query: str) -> list[str]:
        return [each["job"] for each in page.get(f"runs/mapped/run-1?{query}")["jobs"]]

    assert wait_until(lambda: len(shown("task=stream")) == 2, WAIT_S)
    assert shown("task=stream&map_index=1") == [f"{deployed.name}-1"]


def test_only_what_has_changed_is_sent_again(
    kafka: RunningKafka, open_page: Callable[..., PageClient], deployed: DeploymentSpec
) -> None:
    page = open_page(kafka)
    page.row(deployed.name)
    assert page.changes()["full"]
    assert wait_until(lambda: not page.changes()["transforms"], WAIT_S)
    with closing(DeploymentTopic(kafka.config)) as deployments:
        deployments.pause(deployed.name, "broken")
    found: list[Any] = []

    def is_told() -> bool:
        found.append(page.changes())
        return any(row["name"] == deployed.name and row["state"] == "paused" for row in found[-1]["transforms"])

    assert wait_until(is_told, WAIT_S)
    assert (found[-1]["full"], found[-1]["models"]) == (False, None)
    assert "broken" in {row["reason"] for row in found[-1]["transforms"]}


def test_a_transform_is_rolled_back_by_its_plan(
    kafka: RunningKafka, open_page: Callable[..., PageClient], deployed: DeploymentSpec
) -> None:
    page = open_page(kafka)
    page.row(deployed.name)
    plan = page.plan("rollback", transform=deployed.name, generation=None)
    assert plan["title"] == f"Roll back {deployed.name} to generation 1"
    assert page.post("rollback", **plan["fields"]) == (200, f"{deployed.name} is at generation 3, version 1.0.0")
    assert page.row(deployed.name, generation=3)["version"] == "1.0.0"
    last = HistoryTopic(kafka.config).generations(deployed.name)[-1].events[-1]
    assert (last.action, last.cause) == ("rollback", ChangeCause(reason="a test", by="the user", run="page"))
    status, text = page.post("rollback", **plan["fields"])
    assert (status, "generation 3" in text) == (409, True)


def test_there_may_be_nothing_to_roll_back_to(kafka: RunningKafka, open_page: Callable[..., PageClient]) -> None:
    spec = deploy_identity(kafka.config)
    page = open_page(kafka)
    page.row(spec.name)
    plan = page.plan("rollback", transform=spec.name)
    assert (plan["is_possible"], "no earlier generation" in plan["problem"]) == (False, True)


def test_a_transform_is_paused_and_resumed(
    kafka: RunningKafka, open_page: Callable[..., PageClient], deployed: DeploymentSpec
) -> None:
    page = open_page(kafka)
    page.row(deployed.name)
    page.act("pause", transform=deployed.name)
    assert page.row(deployed.name, state="paused")["reason"] == "a test"
    plan = page.plan("resume", transform=deployed.name)
    with closing(DeploymentTopic(kafka.config)) as deployments:
        moved = deployments.deploy(replace(deployed, version="3.0.0"))
        deployments.pause(deployed.name, "also broken")
    status, text = page.post("resume", **plan["fields"])
    assert (status, f"generation {moved.generation}" in text) == (409, True)
    page.row(deployed.name, generation=moved.generation, state="paused")
    assert "It is paused, and runs again." in page.plan("rollback", transform=deployed.name)["effects"]
    page.act("resume", transform=deployed.name)
    assert page.row(deployed.name, state="running")


def test_a_job_is_stopped_once(
    kafka: RunningKafka, open_page: Callable[..., PageClient], deployed: DeploymentSpec, job: str
) -> None:
    page = open_page(kafka)
    page.row(job, "jobs")
    plan = page.plan("stop", job=job)
    assert page.post("stop", **plan["fields"]) == (200, f"job {job} is told to stop")
    assert page.row(job, "jobs", wanted="stopped")
    assert [(each.action, each.cause.by) for each in read_job_events(kafka.config, job)] == [("stop", "the user")]
    with closing(JobTopic(kafka.config)) as jobs:
        jobs.submit(replace(jobs.order(job).spec, run="run-2"))
    status, text = page.post("stop", **plan["fields"])
    assert (status, "run-2" in text) == (409, True)


def test_another_version_is_deployed_with_what_was_chosen(
    kafka: RunningKafka,
    open_page: Callable[..., PageClient],
    deployed: DeploymentSpec,
    registry: FilesystemRegistry,
) -> None:
    for version, env in (("2.0.0", {}), ("2.1.0", {"LEVEL": "debug"})):
        declared = {"input-topic": "declared", "output-topics": ["declared.out"], "env": env}
        registry.publish(deployed.name, version, guest(), metadata=ArtifactMetadata(transform=declared))
    page = open_page(kafka)
    page.row(deployed.name)
    assert wait_until(lambda: page.get(f"versions/{deployed.name}")["versions"] == ["2.1.0", "2.0.0"], WAIT_S)
    page.act("deploy", transform=deployed.name, version="2.1.0")
    with closing(DeploymentTopic(kafka.config)) as deployments:
        current = deployments.get(deployed.name)
    assert (current.generation, current.spec.version, current.spec.env) == (3, "2.1.0", {"LEVEL": "debug"})
    assert current.spec.topics == deployed.topics
    status, text = page.post("deploy", transform=deployed.name, version="9.0.0", expected_generation=3)
    assert (status, "9.0.0" in text) == (404, True)
    status, text = page.post("deploy", transform=deployed.name, version="9.0.0")
    assert (status, text) == (422, "expected_generation is missing: plan the action first")
    assert "resume it" in page.plan("deploy", transform=deployed.name, version="2.1.0")["problem"]


def test_dead_letters_are_previewed_and_redriven(
    kafka: RunningKafka, open_page: Callable[..., PageClient], deployed: DeploymentSpec
) -> None:
    put_dead_letters(kafka, deployed, 3)
    page = open_page(kafka)
    page.row(deployed.name)
    path = f"dead-letters/{deployed.dead_letter_topic}"
    assert wait_until(lambda: page.get(path)["state"] == "ready", WAIT_S)
    letters = page.get(path)["letters"]
    assert [each["value"]["text"] for each in letters] == ["<b>2</b>", "<b>1</b>", "<b>0</b>"]
    assert letters[0]["source"] == f"{deployed.input_topic}-0@0"
    assert page.act("redrive", topic=deployed.dead_letter_topic, error="GuestTrap").startswith("3 dead letters")
    assert page.act("redrive", topic=deployed.dead_letter_topic).startswith("0 dead letters")
    reader = DeadLetterReader(kafka.config, str(deployed.dead_letter_topic))
    assert all(letter.is_redriven(reader.state()) for letter in reader.read())
    assert len(list(read_to_end(kafka.config, deployed.input_topic))) == 6
    redrives = page.get(f"transforms/{deployed.name}")["redrives"]
    assert sorted((each["dead_letters"], each["by"]) for each in redrives) == [(0, "the user"), (3, "the user")]


@pytest.mark.parametrize("shows_payloads", [True, False])
def test_a_record_is_shown_with_where_it_comes_from(
    kafka: RunningKafka, open_page: Callable[..., PageClient], deployed: DeploymentSpec, shows_payloads: bool
) -> None:
    put_dead_letters(kafka, deployed, 1)
    page = open_page(kafka, "viewer", shows_payloads=shows_payloads)
    page.row(deployed.name)
    path = f"records/{deployed.dead_letter_topic}/0/0"
    assert wait_until(lambda: page.get(path)["state"] != "reading", WAIT_S)
    found = page.get(path)
    assert found["problem"] == ""
    record = found["record"]
    assert (record["error"], record["source"]["position"]) == ("GuestTrap", f"{deployed.input_topic}-0@0")
    assert (record["value"] is not None, record["key"] is not None) == (shows_payloads, shows_payloads)
    letters = f"dead-letters/{deployed.dead_letter_topic}"
    assert wait_until(lambda: page.get(letters)["state"] == "ready", WAIT_S)
    [letter] = page.get(letters)["letters"]
    shown = [letter[name] is not None for name in ("key", "value")]
    assert (shown, bool(letter["headers"])) == ([shows_payloads] * 2, shows_payloads)


def test_topics_that_no_transform_uses_are_not_shown(
    kafka: RunningKafka, open_page: Callable[..., PageClient], deployed: DeploymentSpec
) -> None:
    secret = kafka.topic()
    produce_all(kafka.config, secret, [(b"k", b"v", None, None)])
    page = open_page(kafka, "admin")
    page.row(deployed.name)
    for path in (f"records/{secret}/0/0", f"dead-letters/{secret}", f"dead-letters/{deployed.input_topic}"):
        assert page.client.get(f"/api/{path}").status_code == 404


def test_a_cluster_that_is_away_is_shown_with_its_last_state(
    stoppable_kafka: RunningKafka, open_page: Callable[..., PageClient]
) -> None:
    page = open_page(stoppable_kafka)
    assert wait_until(lambda: page.get("state")["cluster"]["state"] == "connected", WAIT_S)
    assert page.get("state")["transforms"] == []
    topics = Topics(stoppable_kafka.config)
    assert topics.describe_existing(["_wasmline.jobs"]) == {}  # to look creates nothing
    spec = deploy_identity(stoppable_kafka.config)
    page.row(spec.name)
    stoppable_kafka.local.stop()
    assert wait_until(lambda: page.get("state")["cluster"]["state"] == "away", WAIT_S)
    away = page.get("state")
    assert [each["name"] for each in away["transforms"]] == [spec.name]
    assert away["cluster"]["read_ms"] is not None
    assert away["cluster"]["error"]
    stoppable_kafka.local.start()
    assert wait_until(lambda: page.get("state")["cluster"]["state"] == "connected", 60)
    assert page.row(spec.name)
