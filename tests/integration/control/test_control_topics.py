"""Deployments, jobs and modules in the control topics of a real broker."""

import json
import threading
import time
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from wasmline.cli import main
from wasmline.control import (
    ClaimProducer,
    Deployment,
    DeploymentSpec,
    DeploymentTopic,
    DriverClaim,
    JobTopic,
    ModuleStore,
    RetrainCheck,
    RetrainStatus,
    RetrainStatusTopic,
    RunReader,
    StatusTopic,
    control_topics,
    deploy,
    left_offsets,
    retrain_status_key,
)
from wasmline.control.module_references import ModuleReferenceReader
from wasmline.control.retrain_status import READ_INTERVAL_S
from wasmline.digests import digest_of
from wasmline.errors import (
    BrokerUnavailable,
    Conflict,
    DeploymentNotFound,
    DigestMismatch,
    Fenced,
    InvalidSpec,
    JobNotFound,
    KafkaError,
    TopicMisconfigured,
    TopicNotFound,
    UnprovenModel,
    VersionNotFound,
)
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import CompactedTopic, KafkaConfig, TopicInfo, Topics, TopicTailer, produce_all, producer
from wasmline.local.process import wait_until
from wasmline.model_reference import ModelReference
from wasmline.partition_status import PartitionStatus
from wasmline.registry import ArtifactMetadata, FilesystemRegistry
from wasmline.wasm import Schema

FETCHED_AGAIN_S = 1.0
"""Seconds: more than those that a consumer pauses after an error, so that it sees the topic while that is short."""

MODULE = bytes(range(256)) * 8_000  # two megabytes: several chunks
RETRAIN_STATUS = RetrainStatus(
    model="eta",
    topic="features",
    champion=None,
    new_records=0,
    checks=(RetrainCheck(condition="new records", text="0 new records, fewer than 1", is_met=False),),
    expected_rmse=None,
    live_rmse=None,
    age_s=None,
    observed_ms=1,
)


def unique(noun: str) -> str:
    return f"{noun}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def config(kafka) -> KafkaConfig:  # type: ignore[no-untyped-def]
    return KafkaConfig(dict(kafka.config.properties))


@pytest.fixture
def spec(config: KafkaConfig) -> DeploymentSpec:
    control_topics = Topics(config)
    source, target = unique("in"), unique("out")
    control_topics.create(source, 3)
    control_topics.create(target, 3)
    digest = digest_of(MODULE)
    return DeploymentSpec(name=unique("t"), version="1.0.0", digest=digest, input_topic=source, output_topics=(target,))


def changed(spec: DeploymentSpec) -> DeploymentSpec:
    """Return a specification that is another generation."""
    return replace(spec, env={"CHANGED": unique("yes")})


def open_transaction(config: KafkaConfig, topic: str) -> Producer:
    """Return a producer with a transaction that hides, from read_committed readers, what follows in ``topic``."""
    foreign = producer(config, **{"transactional.id": unique("foreign")})
    foreign.init_transactions(10)
    foreign.begin_transaction()
    foreign.produce(topic, key=b"foreign", value=b"never committed")
    foreign.flush(10)
    return foreign


def test_a_deployment_is_read_back_as_it_was_made(config: KafkaConfig, spec: DeploymentSpec) -> None:
    made = deploy(config, spec, MODULE)

    assert made.generation == 1
    assert DeploymentTopic(config).get(spec.name) == made
    assert ModuleStore(config).get(spec.digest) == MODULE


def test_a_module_without_the_model_that_is_declared_is_not_deployed(config: KafkaConfig, spec: DeploymentSpec) -> None:
    model = ModelReference(name="eta", version="1.0.0", digest=spec.digest, dataset=spec.digest)
    with pytest.raises(UnprovenModel):
        deploy(config, replace(spec, model=model), MODULE)
    assert spec.name not in DeploymentTopic(config).all()


def test_the_command_line_deploys_schemas_a_clock_and_no_provenance(
    config: KafkaConfig, spec: DeploymentSpec, tmp_path: Path
) -> None:
    declared = {"input-topic": spec.input_topic, "output-topics": list(spec.output_topics)}
    registry = FilesystemRegistry(str(tmp_path / "registry"))
    registry.publish(spec.name, "1.0.0", MODULE, metadata=ArtifactMetadata(transform=declared))
    (tmp_path / "orders.avsc").write_text("{}")
    options = ["--schema", f"7:orders={tmp_path / 'orders.avsc'}", "--clock", "redpanda", "--no-provenance"]
    reached = ["--registry", str(tmp_path / "registry"), "-X", f"bootstrap.servers={config.bootstrap_servers}"]
    result = CliRunner().invoke(main, ["deploy", spec.name, *options, *reached])
    assert result.exit_code == 0, result.output
    schemas = (Schema(id=7, definition="{}", format="avro", subject="orders"),)
    expected = replace(spec, schemas=schemas, clock="redpanda", provenance=False)
    assert DeploymentTopic(config).get(spec.name).spec == expected


def test_each_deployment_of_a_name_is_a_new_generation(config: KafkaConfig, spec: DeploymentSpec) -> None:
    deploy(config, spec, MODULE)
    second = deploy(config, replace(spec, env={"K": "V"}), MODULE, expected_generation=1)

    assert second.generation == 2
    assert DeploymentTopic(config).get(spec.name).spec.env == {"K": "V"}


def test_the_same_deploy_twice_is_one_generation_and_resumes_it(config: KafkaConfig, spec: DeploymentSpec) -> None:
    first = deploy(config, spec, MODULE)
    assert deploy(config, spec, MODULE) == first
    with closing(DeploymentTopic(config)) as deployments:
        deployments.pause(spec.name, "lunch")
        again = deploy(config, spec, MODULE)
        assert (again.generation, again.state, again.reason) == (1, "running", "")
        assert deployments.get(spec.name) == again


def test_who_decided_on_an_old_generation_gets_a_conflict(config: KafkaConfig, spec: DeploymentSpec) -> None:
    deploy(config, spec, MODULE)
    deploy(config, changed(spec), MODULE)

    with pytest.raises(Conflict, match="generation 2, not 1") as caught:
        deploy(config, spec, MODULE, expected_generation=1)
    assert caught.value.generation == 2
    assert DeploymentTopic(config).get(spec.name).generation == 2


def test_of_many_deployers_at_once_exactly_one_wins(config: KafkaConfig, spec: DeploymentSpec) -> None:
    start = threading.Barrier(4)
    won: list[Deployment] = []
    lost: list[Conflict] = []

    def deployer(number: int) -> None:
        log = DeploymentTopic(config)
        start.wait()
        try:
            won.append(log.deploy(replace(spec, env={"BY": str(number)}), expected_generation=0))
        except Conflict as conflict:
            lost.append(conflict)
        finally:
            log.close()

    threads = [threading.Thread(target=deployer, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(won) == 1
    assert len(lost) == 3
    assert DeploymentTopic(config).get(spec.name) == won[0]


def test_a_foreign_open_transaction_does_not_hide_a_deployment_from_the_next_deployer(
    config: KafkaConfig, spec: DeploymentSpec
) -> None:
    deploy(config, spec, MODULE)
    foreign = open_transaction(config, "_wasmline.deployments")
    outcomes: list[type] = []

    def deployer() -> None:
        try:
            outcomes.append(type(DeploymentTopic(config).deploy(changed(spec), expected_generation=1)))
        except Conflict:
            outcomes.append(Conflict)

    threads = [threading.Thread(target=deployer) for _ in range(2)]
    for thread in threads:
        thread.start()
    threads[0].join(2)
    assert outcomes.count(Deployment) == 0  # they wait until the transaction that hides the topic's end is decided
    foreign.abort_transaction(10)
    for thread in threads:
        thread.join(60)

    assert sorted(each.__name__ for each in outcomes) == ["Conflict", "Deployment"]
    assert DeploymentTopic(config).get(spec.name).generation == 2


def test_a_paused_deployment_says_why_and_resumes(config: KafkaConfig, spec: DeploymentSpec) -> None:
    deploy(config, spec, MODULE)
    log = DeploymentTopic(config)

    assert log.pause(spec.name, "too many failures", generation=1).reason == "too many failures"
    assert log.get(spec.name).state == "paused"
    assert log.resume(spec.name).state == "running"


def test_pausing_leaves_a_newer_generation_alone(config: KafkaConfig, spec: DeploymentSpec) -> None:
    deploy(config, spec, MODULE)
    deploy(config, changed(spec), MODULE)
    log = DeploymentTopic(config)

    with pytest.raises(Conflict):
        log.pause(spec.name, "the first one is bad", generation=1)
    assert log.get(spec.name).state == "running"


def test_a_topic_that_does_not_exist_is_named(config: KafkaConfig, spec: DeploymentSpec) -> None:
    with pytest.raises(TopicNotFound, match="nowhere") as caught:
        deploy(config, replace(spec, dead_letter_topic="nowhere"), MODULE)
    assert caught.value.topic == "nowhere"


def test_other_bytes_than_the_spec_names_are_refused(config: KafkaConfig, spec: DeploymentSpec) -> None:
    with pytest.raises(DigestMismatch):
        deploy(config, spec, b"other bytes")
    with pytest.raises(DeploymentNotFound):
        DeploymentTopic(config).get(spec.name)


def test_a_transform_may_not_read_what_it_writes(spec: DeploymentSpec) -> None:
    with pytest.raises(InvalidSpec, match="both input and output"):
        replace(spec, output_topics=(spec.input_topic,))
    with pytest.raises(InvalidSpec, match="both input and dead-letter"):
        replace(spec, dead_letter_topic=spec.input_topic)


def test_an_unknown_module_is_not_found(config: KafkaConfig, spec: DeploymentSpec) -> None:
    with pytest.raises(VersionNotFound):
        ModuleStore(config).get("sha256:" + "0" * 64)


def test_a_broker_that_is_down_is_named() -> None:
    nowhere = KafkaConfig({"bootstrap.servers": "127.0.0.1:1", "socket.connection.setup.timeout.ms": "1000"})
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1"):
        DeploymentTopic(nowhere)


def job(run: str) -> JobSpec:
    return JobSpec(job=unique("job"), run=run, storage="somewhere", stream=StreamSpec(transform=unique("t")))


def test_a_stop_reaches_the_run_it_was_meant_for(config: KafkaConfig) -> None:
    log, spec = JobTopic(config), job("first")
    log.submit(spec)
    log.stop(spec.job, "first")
    assert log.order(spec.job).wanted == "stopped"


def test_a_stop_for_an_earlier_run_is_ignored(config: KafkaConfig) -> None:
    log, spec = JobTopic(config), job("first")
    log.submit(spec)
    log.submit(replace(spec, run="second"))
    log.stop(spec.job, "first")
    assert log.order(spec.job).wanted == "running"


def test_a_report_belongs_to_its_run(config: KafkaConfig) -> None:
    log, spec = JobTopic(config), job("first")
    report = JobReport(job=spec.job, run="first", state=JobState.SUCCEEDED, updated_ms=1, result={"rows": 3})
    log.write_report(report)
    assert log.report(spec.job, "first") == report
    assert log.report(spec.job, "second") is None


def test_a_read_sees_what_was_acknowledged_before_it_behind_an_open_transaction_too(config: KafkaConfig) -> None:
    log, spec = JobTopic(config), job("first")
    report = JobReport(job=spec.job, run="first", state=JobState.RUNNING, updated_ms=1)
    foreign = open_transaction(config, "_wasmline.jobs")
    log.write_report(report)
    decided = threading.Timer(1, foreign.abort_transaction, [10])
    decided.start()
    seen = log.report(spec.job, "first")
    decided.join()

    assert seen == report


@pytest.mark.parametrize(
    ("setting", "partitions", "settings", "told"),
    [
        ("partitions", 3, {}, "has 3 partitions.* --delete --topic"),
        ("cleanup.policy", 1, {"cleanup.policy": "delete"}, "--add-config cleanup.policy=compact"),
        ("cleanup.policy", 1, {"cleanup.policy": "compact,delete"}, "--add-config cleanup.policy=compact"),
        ("unclean.leader.election.enable", 1, {"unclean.leader.election.enable": "true"}, "enable=false"),
    ],
)
def test_a_control_topic_that_exists_with_settings_that_lose_records_is_refused(
    config: KafkaConfig,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
    partitions: int,
    settings: dict[str, str],
    told: str,
) -> None:
    """Such as one that a consumer's first request for it has made, by the broker's defaults."""
    topic = unique("_control")
    monkeypatch.setattr(control_topics, "POLICIES", {topic: control_topics.COMPACTED})
    Topics(config).create(topic, partitions, config={**control_topics.COMPACTED, **settings})
    with pytest.raises(TopicMisconfigured, match=told) as refused:
        control_topics.ensure(config)
    assert (refused.value.topic, refused.value.setting) == (topic, setting)
    assert topic in str(refused.value)


def test_a_control_topic_needs_the_replicas_in_sync_that_it_can_have(caplog: pytest.LogCaptureFixture) -> None:
    """What one replica alone has acknowledged is lost with its broker."""
    config = KafkaConfig({"bootstrap.servers": "nowhere:1"})
    alone, three = (TopicInfo(name=control_topics.JOBS, id="id", partitions=1, replication=each) for each in (1, 3))
    for settings in ({"cleanup.policy": "compact", "min.insync.replicas": "1"}, None):
        control_topics._require_settings(config, alone, settings)
    assert [record.getMessage() for record in caplog.records] == [
        f"the settings of {control_topics.JOBS} are not readable for this client, and are not checked"
    ]
    with pytest.raises(TopicMisconfigured, match=r"has min.insync.replicas=1.*min.insync.replicas=2"):
        control_topics._require_settings(config, three, {"cleanup.policy": "compact", "min.insync.replicas": "1"})


@pytest.mark.parametrize("records", [1, 12], ids=["shorter", "longer"])
def test_a_table_whose_topic_is_made_anew_is_read_anew(config: KafkaConfig, records: int) -> None:
    name = unique("table")
    kafka = Topics(config)
    kafka.create(name, 1, config=control_topics.COMPACTED)
    produce_all(config, name, [(b"old-%d" % number, b"old", None, None) for number in range(5)])
    table = CompactedTopic(config, name)
    assert len(table.read()) == 5
    kafka.delete([name])
    kafka.create(name, 1, config=control_topics.COMPACTED)
    time.sleep(FETCHED_AGAIN_S)
    new = {b"%d" % number: b"new" for number in range(records)}
    produce_all(config, name, [(key, value, None, None) for key, value in new.items()])
    assert table.read() == new
    table.close()


def test_a_follower_says_that_its_topic_was_made_anew(config: KafkaConfig) -> None:
    name = unique("followed")
    kafka = Topics(config)
    kafka.create(name, 1)
    produce_all(config, name, [(b"k", b"old", None, None)] * 5)
    follower = TopicTailer(config, [name])
    assert len(list(follower.poll())) == 5
    kafka.delete([name])
    kafka.create(name, 1)

    def refused() -> bool:
        try:
            return any(follower.poll())
        except KafkaError as error:
            return "recreated" in str(error)

    assert wait_until(refused, 60)
    follower.close()


def test_an_unknown_job_is_not_found(config: KafkaConfig) -> None:
    with pytest.raises(JobNotFound):
        JobTopic(config).order(unique("job"))


def test_the_retrain_status_of_a_model_is_no_record_of_the_job_of_its_name(config: KafkaConfig) -> None:
    spec = JobSpec(job=unique("eta"), run="run-1", storage="s", stream=StreamSpec(transform=unique("t")))
    status = replace(RETRAIN_STATUS, model=spec.job)
    with (
        closing(JobTopic(config)) as jobs,
        closing(RetrainStatusTopic(config, spec.job)) as statuses,
        closing(RunReader(config)) as reader,
        closing(ModuleReferenceReader(config)) as references,
    ):
        order = jobs.submit(spec)
        assert statuses.read() is None
        assert statuses.write(status) == status == statuses.read()
        assert [each.order for each in jobs.overviews() if each.order.spec.job.startswith(spec.job)] == [order]
        assert (jobs.reported_runs(spec.job), jobs.last_claim(spec.job)) == (["run-1"], None)
        assert (jobs.last_withdrawal(spec.job), jobs.last_launch(spec.job)) == (None, None)
        assert reader.read([(spec.job, spec.run)])[spec.job, spec.run].order == order
        assert not [each for each in references.read().unreadable if spec.job in each]
        jobs.delete(spec.job, spec.run)
        assert statuses.read() == status
        newer = json.dumps({"spec_version": 2}).encode()
        produce_all(config, control_topics.JOBS, [(retrain_status_key(spec.job), newer, [], None)])
        assert statuses.read() is None
        assert statuses.write(status) == status


def test_a_writer_of_retrain_statuses_keeps_the_live_errors_that_others_write(config: KafkaConfig) -> None:
    model, now = unique("eta"), 0.0
    unmeasured = replace(RETRAIN_STATUS, model=model, champion="1.0.0")
    with (
        closing(RetrainStatusTopic(config, model, clock=lambda: now)) as one,
        closing(RetrainStatusTopic(config, model)) as other,
    ):
        assert one.write(replace(unmeasured, live_rmse=3.0)).live_errors == {"1.0.0": 3.0}
        later = replace(unmeasured, champion="1.1.0", live_rmse=5.0)
        assert other.write(later).live_errors == {"1.0.0": 3.0, "1.1.0": 5.0}
        assert one.write(replace(unmeasured, live_rmse=4.0)).live_errors == {"1.0.0": 4.0}
        assert other.write(later).live_errors == {"1.0.0": 3.0, "1.1.0": 5.0}
        now += READ_INTERVAL_S
        assert one.write(unmeasured).live_errors == {"1.0.0": 3.0, "1.1.0": 5.0}
        assert other.read() == replace(unmeasured, live_errors={"1.0.0": 3.0, "1.1.0": 5.0})


def test_a_newer_driver_fences_the_older_one(config: KafkaConfig, spec: DeploymentSpec) -> None:
    deployment = deploy(config, spec, MODULE)
    name = unique("job")
    older, newer = ClaimProducer(config, name), None

    def claim(batch_id: int) -> DriverClaim:
        return DriverClaim(run="r", checkpoint="c", batch_id=batch_id, deployment=deployment)

    older.claim(claim(0))
    newer = ClaimProducer(config, name)
    newer.claim(claim(1))

    with pytest.raises(Fenced, match=name):
        older.claim(claim(2))
    newer.claim(claim(3))
    last = JobTopic(config).last_claim(name)
    assert last is not None
    assert last == claim(3)


def test_statuses_are_kept_by_job_and_partition(config: KafkaConfig) -> None:
    name, log = unique("job"), StatusTopic(config)
    status = PartitionStatus(
        job=name, transform="t", topic="in", partition=0, digest="d", generation=1, state="running",
        offset=5, lag=2, rate=1.5, since_offset=0, updated_ms=7,
    )  # fmt: skip
    log.write([status, replace(status, partition=1)])
    log.write([replace(status, offset=6)])
    assert [(each.partition, each.offset) for each in log.all() if each.job == name] == [(0, 6), (1, 5)]


def test_a_lease_left_its_partitions_where_its_statuses_are_certain_of_it(config: KafkaConfig) -> None:
    name, log = unique("job"), StatusTopic(config)
    status = PartitionStatus(
        job=name, transform="t", topic="in", partition=0, digest="d", generation=1, state="running",
        offset=5, lag=2, rate=1.5, since_offset=0, updated_ms=7, lease="driver.2",
    )  # fmt: skip
    log.write([replace(status, committed=9, lease=each) for each in ("driver.1", "driver.22")])
    log.write([replace(status, committed=9, job=f"{name}2")])
    reports: dict[str, list[tuple[str, int, int | None]]] = {
        "one attempt": [("a", 3, None), ("a", 5, 5)],
        "it has less than it had": [("a", 8, None), ("a", 5, 3)],
        "the older one says last that it did nothing": [("a", 0, None), ("b", 5, 5), ("a", 0, 0)],
        "the newer one works still": [("a", 0, None), ("b", 5, None), ("a", 0, 0)],
        "one that says nothing got further": [("a", 6, None), ("b", 5, 5)],
        "none says anything": [("a", 5, None)],
        "the newest one works still, and one before it says more": [("a", 3, None), ("a", 7, 7), ("b", 5, None)],
    }
    for number, of_attempts in enumerate(reports.values()):
        for attempt, offset, committed in of_attempts:
            log.write([replace(status, partition=number, offset=offset, attempt=attempt, committed=committed)])
    exact, least = {0: (5, True), 1: (3, True)}, {3: (0, False), 6: (7, False)}
    fenced = {2: (5, True), 4: (5, True)}
    assert left_offsets(config, name, "driver.2", delivery="at_least_once") == exact
    assert left_offsets(config, name, "driver.2", delivery="exactly_once") == {**exact, **least, **fenced}
