"""The history of deployments on a real broker: events, offsets of generations, and the way back to one of them."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache

import pytest
from click.testing import CliRunner

from wasmline.cli import main
from wasmline.cli.confirmation import user_name
from wasmline.control import (
    NO_CAUSE,
    ChangeCause,
    ClaimWriter,
    Deployment,
    DeploymentEvent,
    DeploymentSpec,
    DeploymentTopic,
    DriverClaim,
    GenerationHistory,
    GenerationStart,
    HistoryTopic,
    JobTopic,
    ModuleStore,
    control_topics,
    deploy,
    find_rollback,
    plan_deployment_rollback,
    roll_back_deployment,
)
from wasmline.control.module_store import StoredModule
from wasmline.digests import digest_of
from wasmline.documents import encode
from wasmline.errors import (
    BrokerUnavailable,
    Conflict,
    DeploymentNotFound,
    Fenced,
    InvalidRollback,
    InvalidSpec,
    VersionNotFound,
)
from wasmline.job_specs import JobReport, JobState
from wasmline.kafka import KafkaConfig, Topics, TransactionalWriter, produce_all
from wasmline.model_reference import ModelReference
from wasmline.testing.kafka import RunningKafka

CAUSE = ChangeCause(reason="outputs are wrong", by="ada", run="rollback/manual__1")


def module(version: int) -> bytes:
    return b"module %d" % version


@cache
def _stored(servers: str, version: int) -> StoredModule:
    return ModuleStore(KafkaConfig({"bootstrap.servers": servers})).put(module(version))


def stored_module(config: KafkaConfig, version: int) -> StoredModule:
    """Return where a module is stored, once for all tests of a cluster."""
    return _stored(config.bootstrap_servers, version)


class Transform:
    """A transform between topics of its own, of which version N has ``module(N)``."""

    def __init__(self, kafka: RunningKafka) -> None:
        self.config = kafka.config
        self.name = f"t-{uuid.uuid4().hex[:8]}"
        self.source, self.target = kafka.topic(), kafka.topic()

    def spec(self, version: int) -> DeploymentSpec:
        return DeploymentSpec(
            name=self.name,
            version=f"{version}.0.0",
            digest=digest_of(module(version)),
            input_topic=self.source,
            output_topics=(self.target,),
        )

    def deploy(self, version: int, cause: ChangeCause = NO_CAUSE) -> Deployment:
        stored = stored_module(self.config, version)
        with closing(DeploymentTopic(self.config)) as deployments:
            return deployments.deploy(self.spec(version), module_offsets=stored.offsets, cause=cause)

    def roll_back(self, version: str | None = None, generation: int | None = None) -> Deployment:
        plan = plan_deployment_rollback(self.config, self.name, version=version, generation=generation)
        return roll_back_deployment(self.config, plan, cause=CAUSE)

    def history(self) -> list[GenerationHistory]:
        return HistoryTopic(self.config).generations(self.name)

    def write_history(self, key: str, value: bytes) -> None:
        produce_all(self.config, control_topics.HISTORY, [(f"{self.name}/{key}".encode(), value, None, None)])


@pytest.fixture
def transform(kafka: RunningKafka) -> Transform:
    return Transform(kafka)


# -- events ------------------------------------------------------------------------------------------------------------


def test_each_generation_names_what_was_done_by_whom_in_which_run_and_why(transform: Transform) -> None:
    cause = ChangeCause(reason="first", by="ada", run="deploy/scheduled__1")
    first = transform.deploy(1, cause=cause)
    with closing(DeploymentTopic(transform.config)) as deployments:
        paused = deployments.pause(transform.name, "too many failures", run="job/run-1")
        resumed = deployments.resume(transform.name, cause=ChangeCause(by="bob"))
    second = transform.deploy(2)

    one, two = transform.history()
    assert [(each.action, each.deployment, each.cause) for each in one.events] == [
        ("deploy", first, cause),
        ("pause", paused, ChangeCause(reason="too many failures", run="job/run-1")),
        ("resume", resumed, ChangeCause(by="bob")),
    ]
    assert [(each.action, each.deployment) for each in two.events] == [("deploy", second)]
    assert (one.number, one.deployment, two.number) == (1, resumed, 2)


def test_a_pause_for_a_reason_of_any_length_is_made(transform: Transform) -> None:
    transform.deploy(1)
    with closing(DeploymentTopic(transform.config)) as deployments:
        assert deployments.pause(transform.name, "\x1b" * 100_000).state == "paused"
    [generation] = transform.history()
    assert generation.events[-1].cause.reason.startswith("\\u001b")


def test_what_changes_nothing_is_no_event(transform: Transform) -> None:
    transform.deploy(1)
    transform.deploy(1)
    with closing(DeploymentTopic(transform.config)) as deployments:
        deployments.resume(transform.name)
    [generation] = transform.history()
    assert len(generation.events) == 1


def test_a_name_whose_deployment_was_lost_does_not_count_from_one(transform: Transform) -> None:
    transform.deploy(1)
    transform.deploy(2)
    with closing(DeploymentTopic(transform.config)) as deployments:
        record = (transform.name.encode(), None, None, None)
        produce_all(transform.config, control_topics.DEPLOYMENTS, [record])
        assert deployments.deploy(transform.spec(3), expected_generation=0).generation == 3


def test_a_writer_that_was_fenced_leaves_no_event(transform: Transform, monkeypatch: pytest.MonkeyPatch) -> None:
    transform.deploy(1)
    rival = f"wasmline.deployment.{transform.name}"
    write = TransactionalWriter.write

    def fenced(writer: TransactionalWriter, *records: object) -> None:
        TransactionalWriter(transform.config, control_topics.DEPLOYMENTS, rival).close()
        write(writer, *records)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(TransactionalWriter, "write", fenced)
        with pytest.raises(Conflict):
            transform.deploy(2)
    assert [each.number for each in transform.history()] == [1]


def test_a_generation_of_a_release_without_a_history_is_recorded_when_it_is_replaced(transform: Transform) -> None:
    stored_module(transform.config, 1)
    earlier = Deployment(spec=transform.spec(1), generation=7, state="running", updated_ms=5)
    record = (transform.name.encode(), encode(earlier), None, None)
    produce_all(transform.config, control_topics.DEPLOYMENTS, [record])
    transform.deploy(2)

    assert [(each.number, each.deployment.spec.version) for each in transform.history()] == [(7, "1.0.0"), (8, "2.0.0")]
    assert transform.roll_back().spec == earlier.spec


def test_a_generation_that_an_earlier_release_has_paused_is_not_recorded_again(transform: Transform) -> None:
    deployed = transform.deploy(1)
    paused = replace(deployed, state="paused", reason="lunch", module_offsets=None)
    record = (transform.name.encode(), encode(paused), None, None)
    produce_all(transform.config, control_topics.DEPLOYMENTS, [record])
    transform.deploy(2)
    assert [[event.action for event in each.events] for each in transform.history()] == [["deploy"], ["deploy"]]


def test_a_rollback_over_a_generation_that_the_history_lacks_names_the_known_ones(transform: Transform) -> None:
    transform.deploy(1)
    for generation in (2, 3):  # an earlier release deploys
        stored_module(transform.config, generation)
        made = Deployment(spec=transform.spec(generation), generation=generation, state="running", updated_ms=5)
        record = (transform.name.encode(), encode(made), None, None)
        produce_all(transform.config, control_topics.DEPLOYMENTS, [record])
    transform.deploy(4)
    assert transform.roll_back().spec == transform.spec(3)
    with pytest.raises(InvalidRollback, match=r"no earlier generation 2 .* are 1 \(1\.0\.0\), 3 \(3\.0\.0\), 4"):
        transform.roll_back()


def test_a_record_of_another_transform_or_generation_than_its_key_is_skipped(
    transform: Transform, kafka: RunningKafka, caplog: pytest.LogCaptureFixture
) -> None:
    other = Transform(kafka)
    deployed = transform.deploy(1)
    foreign = [
        ("1/event/x", DeploymentEvent(action="deploy", deployment=other.deploy(1))),
        ("1/event/y", DeploymentEvent(action="deploy", deployment=replace(deployed, generation=9))),
        (
            "2/start/x",
            GenerationStart(generation=1, job="other", run="r", topic="t", topic_id="i", offsets={0: 1}, started_ms=0),
        ),
    ]
    for key, document in foreign:
        transform.write_history(key, encode(document))
    with caplog.at_level(logging.WARNING):
        [generation] = transform.history()
    assert (len(generation.events), generation.offsets) == (1, ())
    assert len([each for each in caplog.records if "is skipped" in each.getMessage()]) == len(foreign)


def test_a_record_that_cannot_be_read_is_named_and_hides_no_other(
    transform: Transform, caplog: pytest.LogCaptureFixture
) -> None:
    transform.deploy(1)
    for key in ("1/event/x", "1/start/x", "\u00b2/event/x", "x/event/x", "x", "", "1/other/x"):
        transform.write_history(key, b'{"spec_version": 9}\n\x1b[2J')
    with caplog.at_level(logging.WARNING):
        assert [each.number for each in transform.history()] == [1]
    told = [each.getMessage() for each in caplog.records if "is skipped" in each.getMessage()]
    assert len(told) == 4
    assert not any("\x1b" in each or "\n" in each for each in told)


def test_the_history_of_a_name_excludes_names_that_begin_with_it(kafka: RunningKafka) -> None:
    one, other = Transform(kafka), Transform(kafka)
    other.name = f"{one.name}.more"
    one.deploy(1)
    other.deploy(2)
    assert [each.deployment.spec.name for each in one.history()] == [one.name]


# -- offsets -----------------------------------------------------------------------------------------------------------


class Driver:
    """A driver of one job with as many processes as it is asked for."""

    def __init__(self, transform: Transform, name: str) -> None:
        self._config, self._name = transform.config, name
        self._job = f"{transform.name}-job"
        self._processes: list[ClaimWriter] = []

    def process(self) -> ClaimWriter:
        self._processes.append(ClaimWriter(self._config, self._job, self._name))
        return self._processes[-1]

    def claim(self, deployment: Deployment, batch: int, offsets: dict[int, int]) -> DriverClaim:
        return DriverClaim(
            run=f"run-{self._name}",
            driver=self._name,
            topic=deployment.spec.input_topic,
            topic_id="ID",
            checkpoint="c",
            batch_id=batch,
            offsets=offsets,
            deployment=deployment,
        )

    def take_over(self) -> ClaimWriter:
        process = self.process()
        first = DriverClaim(run="r", driver=self._name, checkpoint="", batch_id=-1, deployment=None)
        process.take_over(lambda last: first if last is None else replace(last, driver=self._name))
        return process

    def close(self) -> None:
        for each in self._processes:
            each.close()


@pytest.fixture
def drivers(transform: Transform) -> Iterator[list[Driver]]:
    made = [Driver(transform, name) for name in ("older", "newer")]
    yield made
    for each in made:
        each.close()


def offsets_of(transform: Transform) -> list[tuple[int, str, dict[int, int], Mapping[int, int] | None]]:
    return [
        (each.number, offsets.start.run, offsets.start.offsets, offsets.end)
        for each in transform.history()
        for offsets in each.offsets
    ]


def test_a_generation_has_the_offsets_of_its_first_claim_and_of_the_next_ones(
    transform: Transform, drivers: list[Driver]
) -> None:
    older, newer = drivers
    one = transform.deploy(1)
    claims = older.take_over()
    claims.claim(older.claim(one, -1, {0: 3, 1: 4}))
    claims.claim(older.claim(one, 0, {0: 3, 1: 4}))
    claims.claim(older.claim(one, 1, {0: 9, 1: 5}))
    assert offsets_of(transform) == [(1, "run-older", {0: 3, 1: 4}, None)]

    two = transform.deploy(2)
    claims = newer.take_over()
    claims.claim(newer.claim(one, 1, {0: 9, 1: 5}))  # the batch of the older driver again
    claims.claim(newer.claim(two, 2, {0: 12, 1: 6}))
    assert offsets_of(transform) == [
        (1, "run-older", {0: 3, 1: 4}, {0: 12, 1: 6}),
        (2, "run-newer", {0: 12, 1: 6}, None),
    ]


def test_processes_of_a_driver_record_the_start_of_a_generation_once(
    transform: Transform, drivers: list[Driver]
) -> None:
    driver, _ = drivers
    one, two = transform.deploy(1), transform.deploy(2)
    first = driver.take_over()
    first.claim(driver.claim(one, -1, {0: 0}))
    second = driver.process()
    second.claim(driver.claim(one, 0, {0: 0}))
    second.claim(driver.claim(two, 1, {0: 5}))
    first.claim(driver.claim(two, 1, {0: 8}))  # its last claim, of a query that has ended
    assert offsets_of(transform) == [(1, "run-older", {0: 0}, {0: 5}), (2, "run-older", {0: 5}, None)]


def test_a_claim_whose_answer_is_lost_records_its_start_once(
    transform: Transform, drivers: list[Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, _ = drivers
    one = transform.deploy(1)
    claims, write, lost = driver.take_over(), TransactionalWriter.write, [True]

    def unanswered(writer: TransactionalWriter, *records: object) -> None:
        write(writer, *records)  # type: ignore[arg-type]
        if lost.pop() if lost else False:
            raise BrokerUnavailable("no answer", bootstrap_servers="")

    with monkeypatch.context() as patch:
        patch.setattr(TransactionalWriter, "write", unanswered)
        claims.claim(driver.claim(one, 0, {0: 2}))
    assert not lost
    assert offsets_of(transform) == [(1, "run-older", {0: 2}, None)]


def test_a_generation_keeps_the_last_report_of_its_run(transform: Transform, drivers: list[Driver]) -> None:
    older, newer = drivers
    one, two = transform.deploy(1), transform.deploy(2)
    claims = older.take_over()
    claims.claim(older.claim(one, 0, {0: 0}))
    report = JobReport.now(f"{transform.name}-job", "run-older", JobState.RUNNING, "at work")
    report = replace(report, result={"records_in": 100, "dead_letters": {"GuestTrap": 60}, "batches": [{}] * 9})
    with closing(JobTopic(transform.config)) as jobs:
        jobs.write_report(report)
    newer.take_over().claim(newer.claim(two, 1, {0: 100}))
    kept = [offsets.report for each in transform.history() for offsets in each.offsets]
    assert kept == [replace(report, result={"records_in": 100, "dead_letters": {"GuestTrap": 60}}), None]


def test_a_run_that_began_nothing_replaces_no_report(transform: Transform, drivers: list[Driver]) -> None:
    """A deployment comes between the first claim of a run and its first batch."""
    older, newer = drivers
    one, two = transform.deploy(1), transform.deploy(2)
    older.take_over().claim(older.claim(two, 0, {0: 3}))
    claims = newer.take_over()
    claims.claim(newer.claim(one, -1, {0: 9}))  # it had read the deployment before
    with closing(JobTopic(transform.config)) as jobs:
        jobs.write_report(JobReport.now(f"{transform.name}-job", "run-newer", JobState.RUNNING, "started"))
    claims.claim(newer.claim(two, 0, {0: 9}))
    assert offsets_of(transform) == [
        (1, "run-newer", {0: 9}, {0: 9}),
        (2, "run-older", {0: 3}, {0: 9}),
        (2, "run-newer", {0: 9}, None),
    ]
    assert not any(offsets.report for each in transform.history() for offsets in each.offsets)


def test_a_fenced_driver_records_no_start(transform: Transform, drivers: list[Driver]) -> None:
    older, newer = drivers
    one = transform.deploy(1)
    first = older.take_over()
    first.claim(older.claim(one, 0, {0: 0}))
    newer.take_over()
    two = transform.deploy(2)
    with pytest.raises(Fenced, match="a newer driver claimed"):
        first.claim(older.claim(two, 1, {0: 7}))
    assert offsets_of(transform) == [(1, "run-older", {0: 0}, None)]


# -- rollback ----------------------------------------------------------------------------------------------------------


def test_a_rollback_deploys_the_generation_before_again_and_then_the_one_before_that(transform: Transform) -> None:
    for version in (1, 2, 3):
        transform.deploy(version)
    made = [transform.roll_back() for _ in range(2)]
    assert [(each.generation, each.spec) for each in made] == [(4, transform.spec(2)), (5, transform.spec(1))]
    with pytest.raises(InvalidRollback, match="no earlier generation 0"):
        transform.roll_back()

    *_, four, five = transform.history()
    assert [
        (each.events[0].action, each.events[0].restored_generation, each.events[0].cause) for each in (four, five)
    ] == [
        ("rollback", 2, CAUSE),
        ("rollback", 1, CAUSE),
    ]
    assert transform.deploy(4).generation == 6
    assert transform.roll_back().spec == transform.spec(1)
    with pytest.raises(InvalidRollback, match="no earlier generation 0"):  # never to one that was rolled back
        transform.roll_back()


def test_a_rollback_returns_to_any_version_or_generation(transform: Transform) -> None:
    first = transform.deploy(1)
    deploy(transform.config, replace(transform.spec(1), env={"UNIT": "km"}), module(1))
    transform.deploy(2)
    transform.deploy(3)
    assert transform.roll_back("1.0.0").spec.env == {"UNIT": "km"}
    assert transform.roll_back(generation=1).spec == first.spec


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"version": "9.0.0"}, r"no earlier version 9\.0\.0.*1 \(1\.0\.0\): name one"),
        ({"generation": 2}, "generation 2"),
        ({"generation": 9}, "generation 9"),
    ],
)
def test_what_was_never_deployed_before_is_no_target(transform: Transform, target: dict[str, str], told: str) -> None:
    transform.deploy(1)
    transform.deploy(2)
    with pytest.raises(InvalidRollback, match=told):
        plan_deployment_rollback(transform.config, transform.name, **target)  # type: ignore[arg-type]


def test_a_rollback_to_the_current_specification_is_rejected(transform: Transform) -> None:
    transform.deploy(1)
    transform.deploy(2)
    transform.roll_back()
    with pytest.raises(InvalidRollback, match=r"already runs the specification of generation 1, version 1\.0\.0"):
        transform.roll_back("1.0.0")


def test_a_rollback_needs_a_reason_and_something_that_is_deployed(transform: Transform) -> None:
    with pytest.raises(DeploymentNotFound):
        transform.roll_back()
    transform.deploy(1)
    transform.deploy(2)
    plan = plan_deployment_rollback(transform.config, transform.name)
    assert plan.changed_fields == ("version", "digest")
    with pytest.raises(InvalidSpec, match="reason of a change has 1,001 letters"):
        ChangeCause(reason="x" * 1_001)
    with pytest.raises(InvalidRollback, match="needs a reason"):
        roll_back_deployment(transform.config, plan, cause=ChangeCause(reason=" "))


def test_a_deployment_since_the_plan_is_a_conflict(transform: Transform) -> None:
    transform.deploy(1)
    transform.deploy(2)
    plan = plan_deployment_rollback(transform.config, transform.name)
    transform.deploy(3)
    with pytest.raises(Conflict):
        roll_back_deployment(transform.config, plan, cause=CAUSE)


def test_a_rollback_to_another_model_is_left_to_the_models(transform: Transform) -> None:
    transform.deploy(1)
    digest = digest_of(b"model")
    model = ModelReference(name="eta", version="1.0.0", digest=digest, dataset=digest)
    with closing(DeploymentTopic(transform.config)) as deployments:
        deployments.deploy(replace(transform.spec(2), model=model))
    with pytest.raises(InvalidRollback, match="wasmline models rollback"):
        transform.roll_back()


def test_a_rollback_of_another_generation_than_the_expected_one_is_a_conflict(transform: Transform) -> None:
    transform.deploy(1)
    transform.deploy(2)
    with pytest.raises(Conflict, match="at generation 2, not 1"):
        plan_deployment_rollback(transform.config, transform.name, expected_generation=1)
    status, _, told = wasmline(
        transform, "rollback", transform.name, "--reason", "x", "--yes", "--expected-generation", "1"
    )
    assert (status, "at generation 2, not 1" in told) == (1, True)


def test_a_run_that_is_tried_again_finds_its_rollback_and_never_undoes_a_later_deployment(transform: Transform) -> None:
    transform.deploy(1)
    transform.deploy(2)
    assert find_rollback(transform.config, transform.name, CAUSE.run) is None
    made = transform.roll_back()
    assert find_rollback(transform.config, transform.name, CAUSE.run) == made
    assert find_rollback(transform.config, transform.name, "another/run") is None
    transform.deploy(3)
    with pytest.raises(Conflict, match="in generation 3, and generation 4 is current"):
        find_rollback(transform.config, transform.name, CAUSE.run)


# -- modules -----------------------------------------------------------------------------------------------------------


def test_a_deployed_module_is_found_by_its_offsets(transform: Transform, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = transform.deploy(1)
    store = ModuleStore(transform.config)
    with monkeypatch.context() as patch:
        patch.setattr(ModuleStore, "_chunks", None)  # which reads the whole topic
        assert store.get(deployment.spec.digest, deployment.module_offsets) == module(1)


def test_a_module_that_is_deployed_again_is_not_stored_again(transform: Transform) -> None:
    first = deploy(transform.config, transform.spec(1), module(1))
    end = Topics(transform.config).end_offsets(control_topics.MODULES)
    again = deploy(transform.config, replace(first.spec, env={"UNIT": "km"}), module(1))
    other = deploy(transform.config, replace(first.spec, name=f"{transform.name}.other"), module(1))
    transform.deploy(2)
    restored = transform.roll_back(generation=1)  # the other transform has the module
    assert again.module_offsets == other.module_offsets == restored.module_offsets == first.module_offsets
    assert Topics(transform.config).end_offsets(control_topics.MODULES) == end


def test_a_module_that_is_not_at_its_offsets_is_found_elsewhere(transform: Transform) -> None:
    deployment = transform.deploy(1)
    offsets = deployment.module_offsets
    assert offsets is not None
    for moved_by in (-1, 1, 1_000_000):
        wrong = replace(offsets, begin=max(0, offsets.begin + moved_by), end=max(0, offsets.end + moved_by))
        assert ModuleStore(transform.config).get(deployment.spec.digest, wrong) == module(1)


def test_chunks_with_malformed_keys_hide_no_module(transform: Transform) -> None:
    wasm = uuid.uuid4().bytes
    digest = digest_of(wasm)
    suffixes = b"/0/99999999999", b"/x/1", b"/0", b"/5/1", b"/-1/1", b"/0/0", b"/0/1/2", b"\xff/0/1"
    foreign = [(digest.encode() + suffix, b"foreign", None, None) for suffix in suffixes]
    produce_all(transform.config, control_topics.MODULES, foreign)
    store = ModuleStore(transform.config)
    with pytest.raises(VersionNotFound):
        store.get(digest)
    stored = store.put(wasm)
    produce_all(transform.config, control_topics.MODULES, foreign)
    assert store.get(digest) == store.get(digest, stored.offsets) == wasm


# -- the command line --------------------------------------------------------------------------------------------------


def wasmline(transform: Transform, *arguments: str) -> tuple[int, str, str]:
    servers = f"bootstrap.servers={transform.config.bootstrap_servers}"
    done = CliRunner().invoke(main, [*arguments, "-X", servers])
    return done.exit_code, done.stdout, done.stderr


def test_the_command_line_shows_the_history_and_rolls_back(transform: Transform) -> None:
    transform.deploy(1, cause=ChangeCause(reason="first", by="ada", run="deploy/manual__1"))
    transform.deploy(2)
    status, _, told = wasmline(transform, "rollback", transform.name, "--yes")
    assert (status, "Missing option '--reason'" in told) == (2, True)
    status, _, told = wasmline(transform, "rollback", transform.name, "--reason", "wrong")
    assert (status, "add --yes" in told) == (2, True)
    assert len(transform.history()) == 2

    status, shown, told = wasmline(transform, "rollback", transform.name, "--reason", "wrong", "--yes")
    assert status == 0, told
    assert shown == f'transform "{transform.name}" rolled back: version 1.0.0, generation 3\n'
    assert "generation 2, version 2.0.0, is replaced\nby version 1.0.0 as it was deployed in generation 1\n" in told
    assert "version: 2.0.0 -> 1.0.0\ndigest: sha256:" in told

    status, shown, _ = wasmline(transform, "history", transform.name)
    header, first, _, last = (line.split() for line in shown.splitlines())
    assert header == ["GENERATION", "STATE", "VERSION", "TIME", "ACTION", "BY", "RUN", "REASON"]
    assert (first[:3], first[4:]) == (["1", "replaced", "1.0.0"], ["deploy", "ada", "deploy/manual__1", "first"])
    assert (last[:3], last[4:]) == (["3", "running", "1.0.0"], ["rollback", "to", "1", user_name(), "-", "wrong"])


def test_the_history_is_printed_as_json_and_with_the_offsets(transform: Transform, drivers: list[Driver]) -> None:
    driver, _ = drivers
    one, two = transform.deploy(1), transform.deploy(2)
    claims = driver.take_over()
    claims.claim(driver.claim(one, 0, {0: 3}))
    claims.claim(driver.claim(two, 1, {0: 8}))
    _, shown, _ = wasmline(transform, "history", transform.name, "--detailed")
    rows = [line.split() for line in shown.splitlines()]
    job = f"{transform.name}-job"
    assert rows[-2:] == [["1", job, transform.source, "0", "3", "8"], ["2", job, transform.source, "0", "8", "-"]]

    _, shown, _ = wasmline(transform, "history", transform.name, "--json")
    document = json.loads(shown)
    first, second = document["generations"]
    assert document["current"]["generation"] == 2
    assert (first["number"], first["offsets"][0]["end"]) == (1, {"0": 8})
    assert second["events"][0]["deployment"]["spec"]["version"] == "2.0.0"


def test_the_history_of_nothing_is_an_error(transform: Transform) -> None:
    status, _, told = wasmline(transform, "history", transform.name)
    assert status == 1
    assert f"nothing is deployed as '{transform.name}'" in told
