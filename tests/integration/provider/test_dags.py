"""The product's own DAGs: they load, they say what they are, and the steps that need no Spark run."""

import itertools
import json
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from airflow._shared.timezones import timezone
from airflow.models.asset import AssetEvent, AssetModel
from airflow.sdk import RetryAction
from airflow.sdk.api.datamodels._generated import DagRun, DagRunType
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError
from airflow.sdk.execution_time.context import ConnectionAccessor
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.session import create_session
from sqlalchemy import select

from delivery.approval import KEEP, PROMOTE
from delivery.training_spec import train_spec
from demo_stack.progress_lines import ProgressLines
from enriching.benchmark import ConsumerComparison
from enriching.service import SlowService
from support.eta_model import eta_record, eta_rows
from support.served_model import ServedModel, small_models
from support.streams.identity_transform import deploy_identity
from wasmline import dead_letters
from wasmline.control import (
    ChangeCause,
    DeploymentTopic,
    HistoryTopic,
    JobStatusReader,
    PartitionTotals,
    deploy,
)
from wasmline.errors import JobBusy, JobFailed
from wasmline.job_specs import FunctionSpec, SliceRequest
from wasmline.kafka import Topics, produce_all, read_to_end
from wasmline.local.ports import HOST
from wasmline.redrive import DeadLetterReader
from wasmline.registry import FilesystemRegistry
from wasmline.testing.guests import guest
from wasmline.testing.kafka import RunningKafka
from wasmline.topic_partitions import TopicPartition
from wasmline.training import ModelRegistry
from wasmline_provider.operators.deploy import WasmRollbackOperator
from wasmline_provider.operators.redrive import RedriveDeadLettersOperator
from wasmline_provider.triggers.dead_stream import DeadStreamTrigger

ROWS = 1_000


def test_the_pipeline_builds_beside_producing_and_reports_at_the_end(load: Callable[[str], ModuleType]) -> None:
    dag = load("delivery_pipeline").dag
    upstream = {task.task_id: set(task.upstream_task_ids) for task in dag.tasks}
    assert upstream == {
        "topics": set(),
        "build": set(),
        "test": {"build"},
        "publish": {"test", "build"},
        "deploy": {"publish", "topics"},
        "produce": {"topics"},
        "stream": {"deploy", "produce"},
        "verify": {"stream"},
        "train": {"stream"},
        "promote": {"train", "verify"},
        "compile_model": {"promote"},
        "deploy_model": {"compile_model"},
        "predict": {"deploy_model"},
        "verify_predictions": {"predict", "compile_model", "topics"},
        "report": {"verify_predictions"},
    }
    assert set(upstream) == {*load("delivery_pipeline").STEPS, "report"}


@pytest.mark.parametrize(
    "name", ["delivery_pipeline", "enrich_over_http", "retrain_delivery_eta", "rollback_delivery_eta"]
)
def test_the_outlets_of_a_dag_have_uris_that_name_their_cluster_or_registry(
    load: Callable[[str], ModuleType], name: str, tmp_path: Path
) -> None:
    outlets = {each.uri for task in load(name).dag.tasks for each in task.outlets}
    artifacts = ("wasm://file" + str(tmp_path), "model://file" + str(tmp_path))
    assert outlets
    assert all(each.startswith(("kafka://localhost:9092/", *artifacts)) for each in outlets)


@pytest.mark.parametrize("name", ["delivery_pipeline", "enrich_over_http", "retrain_delivery_eta"])
def test_every_parameter_of_a_form_is_explained_and_has_a_valid_default(
    load: Callable[[str], ModuleType], name: str
) -> None:
    dag = load(name).dag
    dag.params.validate()
    for key in dag.params:
        parameter = dag.params.get_param(key)
        assert parameter.schema["title"]
        assert parameter.description


def test_a_rollback_needs_a_reason_and_its_form_offers_the_versions(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    form = load("rollback_delivery_eta").dag.params
    assert form.get_param("version").schema["examples"] == []
    with pytest.raises(ParamValidationError):
        form.validate()
    record = replace(eta_record(), model="delivery-eta")
    for number in range(2):
        ModelRegistry(str(tmp_path / "models")).publish(record, b"%d" % number)
    form = load("rollback_delivery_eta").dag.params
    assert form.get_param("version").schema["examples"] == ["1.1.0", "1.0.0"]
    form["reason"] = "late orders"
    form.validate()
    for key in form:
        assert form.get_param(key).schema["title"]
        assert form.get_param(key).description


def test_the_form_of_a_rollback_is_there_without_a_readable_registry(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    (tmp_path / "models").write_text("no folder")
    assert load("rollback_delivery_eta").dag.params.get_param("version").schema["examples"] == []


def test_a_rollback_from_the_form_is_in_the_stream_and_in_the_history(
    load: Callable[[str], ModuleType], run_dag: Callable[..., Any], connected: RunningKafka, tmp_path: Path
) -> None:
    rows = eta_rows()
    model = ServedModel(connected, tmp_path, small_models(rows, eta_record()), rows, name="delivery-eta")
    model.promote("1.0.0", "1.1.0")
    model.deploy("1.1.0")
    dag = load("rollback_delivery_eta").dag
    run = run_dag(dag, reason="late orders", version="1.0.0")
    assert run.state == "success"
    *_, decision = model.log.history("delivery-eta")
    assert (decision.decision, decision.version, decision.reason) == ("rollback", "1.0.0", "late orders")
    assert (decision.by, decision.run) == ("dag_test", f"rollback_delivery_eta/{run.run_id}")
    assert (model.deployed().spec.version, model.serving().state) == ("1.0.0", "serving")
    for name in ("retrain_delivery_eta", "delivery_pipeline"):
        late = load(name).dag.get_task("deploy_model")
        late.version = "1.1.0"
        context = {"dag_run": SimpleNamespace(dag_id=name), "run_id": "late"}
        with pytest.raises(
            AirflowFailException,
            match=r"Conflict: .*has delivery-eta@1\.1\.0, and the champion is delivery-eta@1\.0\.0",
        ):
            late.execute(context)
    assert model.deployed().spec.version == "1.0.0"
    model.promote("1.2.0")
    with pytest.raises(AirflowFailException, match=r"ModelNotServing: .*the champion delivery-eta.* is not published"):
        dag.get_task("check").execute({})


def test_a_transform_is_rolled_back_from_the_form_once_and_never_over_a_later_deployment(
    load: Callable[[str], ModuleType], run_dag: Callable[..., Any], connected: RunningKafka
) -> None:
    first = deploy_identity(connected.config)
    deploy(connected.config, replace(first, version="2.0.0"), guest())
    dag = load("rollback_transform").dag
    assert first.name in dag.params.get_param("transform").schema["examples"]
    run = run_dag(dag, transform=first.name, reason="late orders")
    assert run.state == "success"
    *_, generation = HistoryTopic(connected.config).generations(first.name)
    [event] = generation.events
    cause = ChangeCause(reason="late orders", by="dag_test", run=f"rollback_transform/{run.run_id}")
    assert (event.action, event.restored_generation, event.cause, event.deployment.spec) == (
        "rollback",
        1,
        cause,
        first,
    )

    task, context = rollback(first.name), {"dag_run": SimpleNamespace(dag_id=dag.dag_id), "run_id": run.run_id}
    assert task.execute(context)["generation"] == 3  # the run is cleared
    deploy(connected.config, replace(first, version="3.0.0"), guest())
    with pytest.raises(AirflowFailException, match="in generation 3, and generation 4 is current"):
        task.execute(context)
    late = {**context, "run_id": "late"}
    with pytest.raises(AirflowFailException, match="at generation 4, not 3"):
        rollback(first.name, expected_generation="3").execute(late)
    with pytest.raises(AirflowFailException, match="InvalidRollback"):
        rollback(first.name, version="9.0.0").execute(late)
    assert rollback(first.name, generation="2").execute(late)["version"] == "2.0.0"


def test_dead_letters_are_redriven_from_the_form_once_also_if_the_run_is_cleared(
    load: Callable[[str], ModuleType], run_dag: Callable[..., Any], connected: RunningKafka
) -> None:
    topic = connected.topic()
    spec = replace(deploy_identity(connected.config), dead_letter_topic=topic, version="1.0.1")
    deploy(connected.config, spec, guest())
    place = dead_letters.coordinates(TopicPartition(spec.input_topic, 0), 0)
    origin = dead_letters.origin(transform=f"{spec.name}@1.0.0", digest=spec.digest)
    headers = [*dead_letters.failure(error="GuestTrap", reason="no"), *origin, *place]
    produce_all(connected.config, topic, [(b"k", b"%d" % number, headers, None) for number in range(3)])
    dag = load("redrive_dead_letters").dag
    assert topic in dag.params.get_param("topic").schema["examples"]
    run = run_dag(dag, topic=topic, through=spec.name, error="GuestTrap", reason="1.0.1 is deployed")
    assert run.state == "success"
    assert [each.value() for each in read_to_end(connected.config, spec.output_topics[0])] == [b"0", b"1", b"2"]

    produce_all(connected.config, topic, [(b"k", b"3", headers, None)])
    task = RedriveDeadLettersOperator(task_id="redrive", topic=topic, through=spec.name, error="GuestTrap", reason="x")
    context = {"dag_run": SimpleNamespace(dag_id=dag.dag_id), "run_id": run.run_id}
    counts = {"dead_letters": 3, "outputs": 3, "failed_again": 0, "skipped": {}}
    assert task.execute(context) == {"topic": topic, **counts}  # the run is cleared
    reader = DeadLetterReader(connected.config, topic)
    [made] = reader.state().redrives.values()
    assert (made.cause.reason, made.cause.by) == ("1.0.1 is deployed", "dag_test")
    assert (made.id, made.cause.run) == (f"{dag.dag_id}/{run.run_id}/redrive", f"{dag.dag_id}/{run.run_id}")
    assert task.execute({**context, "run_id": "late"})["dead_letters"] == 1
    with pytest.raises(AirflowFailException, match="InvalidRedrive"):
        RedriveDeadLettersOperator(task_id="redrive", topic=topic, to_topic=topic, reason="x").execute(context)

    produce_all(connected.config, topic, [(b"k", b"4", dead_letters.failure(error="GuestTrap", reason="no"), None)])
    dag = load("redrive_dead_letters").dag  # in one process, a run keeps the parameters of the one before
    assert run_dag(dag, topic=topic, reason="it names no source").state == "failed"
    task = RedriveDeadLettersOperator(task_id="redrive", topic=topic, reason="x", allow_skipped=True)
    assert sum(task.execute({**context, "run_id": "anyway"})["skipped"].values()) == 1


def rollback(name: str, **arguments: Any) -> WasmRollbackOperator:
    return WasmRollbackOperator(task_id="rollback", name=name, reason="late orders", **arguments)


def intervals(dag: Any, since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """The intervals that the scheduler, or a backfill, makes of a DAG's timetable."""
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    found = stored.iter_dagrun_infos_between(timezone.coerce_datetime(since), timezone.coerce_datetime(until))
    return [(one.data_interval.start, one.data_interval.end) for one in found if one.data_interval]


def test_the_retraining_is_nightly_in_summer_time_too_and_a_backfill_of_ten_days_has_ten_intervals_that_touch(
    load: Callable[[str], ModuleType],
) -> None:
    dag = load("retrain_delivery_eta").dag
    assert not dag.catchup
    berlin = ZoneInfo("Europe/Berlin")
    for first, hours in ((datetime(2026, 3, 24, 3, tzinfo=berlin), 23), (datetime(2026, 10, 20, 3, tzinfo=berlin), 25)):
        days = intervals(dag, first, first + timedelta(days=9))
        assert len(days) == 10
        assert all(end == start for (_, end), (start, _) in itertools.pairwise(days))
        assert {moment.astimezone(berlin).hour for day in days for moment in day} == {3}
        lengths = Counter((end - start).total_seconds() / 3600 for start, end in days)
        assert lengths == {24: 9, hours: 1}
    command = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 11, tzinfo=UTC)  # of the docstring: midnight in UTC
    assert "--from-date 2026-01-01 --to-date 2026-01-11 --max-active-runs 1" in dag.doc_md
    assert len(intervals(dag, *command)) == 10


@pytest.mark.parametrize(
    ("kind", "payload", "asked"),
    [
        (DagRunType.SCHEDULED, None, ("previous", "2026-01-02T03:00:00+01:00", "scheduled: 2026-01-01")),
        (DagRunType.BACKFILL, None, ("2026-01-01T03:00:00+01:00", "2026-01-02T03:00:00+01:00", "backfill: 2026-01-01")),
        (DagRunType.ASSET_TRIGGERED, None, ("previous", "now", "an asset event without reasons")),
        (DagRunType.ASSET_TRIGGERED, {"until": {"0": 5}, "why": "age drifted"}, ("previous", {"0": 5}, "age drifted")),
        (DagRunType.MANUAL, None, ("previous", "now", "asked for in the form")),
    ],
)
def test_a_run_of_each_kind_takes_its_slice(
    load: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    kind: DagRunType,
    payload: dict[str, Any] | None,
    asked: tuple[Any, Any, str],
) -> None:
    module = load("retrain_delivery_eta")
    start = datetime(2026, 1, 1, 2, tzinfo=UTC)
    run = DagRun.model_construct(run_type=kind, data_interval_start=start, data_interval_end=start + timedelta(days=1))
    extra = {"payload": {"reasons": [], "observed_ms": 1, **payload}} if payload else {"from_rest_api": True}
    events = {"retrain": [SimpleNamespace(extra=extra)]} if kind is DagRunType.ASSET_TRIGGERED else {}
    params = {"since": "previous", "since_time": None, "windows": ["all"]}
    context = {"dag_run": run, "triggering_asset_events": events, "params": params}
    monkeypatch.setattr(module, "get_current_context", lambda: context)
    found = module.dag.get_task("select_slice").python_callable()
    assert (found["since"], found["until"], found["why"][: len(asked[2])]) == asked


def test_a_run_of_the_retraining_waits_for_another_ones_training_and_retries_nothing_else(
    load: Callable[[str], ModuleType],
) -> None:
    train = load("retrain_delivery_eta").dag.get_task("train")
    busy = JobBusy("it runs already", job="delivery-eta-retrain", run="other")
    found = train.retry_policy.evaluate(busy, try_number=1, max_tries=train.retries)
    assert (found.action, found.retry_delay) == (RetryAction.RETRY, timedelta(minutes=5))
    failed = JobFailed("no trees", report={})
    assert train.retry_policy.evaluate(failed, try_number=1, max_tries=train.retries).action is RetryAction.FAIL


def test_both_trainings_order_the_spec_of_the_delivery_time_model(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    spec = train_spec(topic="deliveries.features", models=str(tmp_path / "models"))
    first = load("delivery_pipeline").dag.get_task("train")
    first.slice_key = "run"
    assert first.spec({}).train == replace(spec, slice=SliceRequest(run="run"))
    nightly = load("retrain_delivery_eta").dag.get_task("train")
    rendered = {"since": "previous", "until": "now", "slice_key": "run", "windows": ["all", "last 7"]}
    for name, value in {**rendered, "min_new_rows": "500", "margin": "0.1"}.items():
        setattr(nightly, name, value)
    asked: dict[str, Any] = {"windows": ("all", "last 7"), "min_new_rows": 500, "margin": 0.1}
    assert nightly.spec({}).train == replace(spec, slice=SliceRequest(run="run"), **asked)


def test_the_retraining_ends_in_one_of_four_ways_each_of_which_is_checked(load: Callable[[str], ModuleType]) -> None:
    dag = load("retrain_delivery_eta").dag
    assert dag.get_task("check_serving").upstream_task_ids == {"promoted", "kept", "refused", "skipped"}
    assert dag.get_task("branch_on_decision").downstream_task_ids == {"compile_model", "kept", "refused"}
    assert dag.get_task("needs_approval").downstream_task_ids == {"approve", "read_approval"}
    approve = dag.get_task("approve")
    assert (approve.options, approve.defaults) == ([PROMOTE, KEEP], [KEEP])
    (wanted,) = dag.timetable.asset_condition.objects
    (watcher,) = wanted.watchers
    path, arguments = watcher.trigger.serialize()
    assert (path, arguments["model"]) == ("wasmline_provider.triggers.retrain.RetrainTrigger", "delivery-eta")


def test_supervised_streams_are_ensured_one_by_one_then_checked_and_watched(
    load: Callable[[str], ModuleType],
) -> None:
    module = load("supervise_streams")
    ensured = {f"ensure_{job}" for job in module.STREAMS}
    assert {task.task_id: set(task.upstream_task_ids) for task in module.dag.tasks} == {
        **{task_id: set() for task_id in ensured},
        "check": ensured,
        "all_ensured": ensured,
    }
    for task_id in ensured:
        task = module.dag.get_task(task_id)
        assert (task.wait_for_completion, task.restart_stopped) == (False, False)
        assert task.spec({}).is_continuous
    (watcher,) = module.dead_streams.watchers
    assert isinstance(watcher.trigger, DeadStreamTrigger)
    assert watcher.trigger.jobs == list(module.STREAMS)
    assert module.dag.get_task("check").trigger_rule == "all_done"
    assert module.dag.get_task("all_ensured").trigger_rule == "none_failed"  # a leaf: the run fails with an ensure


def test_the_supervision_waits_some_minutes_for_a_cluster_and_lets_the_next_run_start_what_died_in_this_one(
    load: Callable[[str], ModuleType],
) -> None:
    module = load("supervise_streams")
    assert module.dag.max_active_runs >= 16, "a run that lasts long keeps no other stream dead"
    ensure, check = (module.dag.get_task(name) for name in (f"ensure_{next(iter(module.STREAMS))}", "check"))
    delays = [ensure.retry_delay * ensure.retry_exponential_backoff**retry for retry in range(ensure.retries)]
    assert sum((min(each, ensure.max_retry_delay) for each in delays), timedelta()) > timedelta(minutes=5)
    assert 2 * ensure.retries * ensure.max_retry_delay < module.dag.dagrun_timeout, "with Airflow's jitter"
    assert check.retries * check.retry_delay >= timedelta(minutes=2)
    assert not check.retry_exponential_backoff


def test_the_enrichment_is_ordered_as_its_form_says_with_the_address_of_its_connection(
    load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = {"conn_type": "http", "host": "crm", "port": 8080}
    monkeypatch.setenv("AIRFLOW_CONN_CUSTOMERS", json.dumps(connection))
    dag = load("enrich_over_http").dag
    enrich = dag.get_task("enrich")
    enrich.render_template_fields({"params": {"pause": None, "max_concurrency": 7}, "conn": ConnectionAccessor()})
    stream = enrich.spec({}).stream
    assert (stream.mode, stream.ordering, stream.delivery) == ("parallel", "key", "exactly_once")
    assert (stream.max_concurrency, stream.trigger_interval) == (7, None)
    assert stream.function == FunctionSpec(
        function="enrichment_handler:with_customer",
        topic="orders",
        dead_letter_topic="orders.dlq",
        max_attempts=5,
        retry_delay_ms=500,
    )
    assert enrich.conf["spark.executorEnv.CUSTOMERS_URL"] == "http://crm:8080"
    assert Path(enrich.spark_options["py_files"]).exists()


def asset_events(uri: str) -> list[dict[str, Any]]:
    """Return what Airflow has kept of the events of an asset, the oldest first."""
    with create_session() as session:
        events = select(AssetEvent).join(AssetModel, AssetModel.id == AssetEvent.asset_id).where(AssetModel.uri == uri)
        return [dict(each.extra) for each in session.scalars(events.order_by(AssetEvent.id))]


def test_the_steps_up_to_the_stream_build_publish_deploy_and_produce(
    load: Callable[[str], ModuleType], run_dag: Callable[..., Any], connected: RunningKafka, tmp_path: Path
) -> None:
    dag = load("delivery_pipeline").dag.partial_subset(["deploy", "produce"], include_upstream=True)
    assert run_dag(dag, rows=ROWS).state == "success"

    published = FilesystemRegistry(str(tmp_path / "registry")).get("delivery-distance")
    deployments = DeploymentTopic(connected.config)
    deployed = deployments.get("delivery-distance")
    deployments.close()
    assert (deployed.spec.version, deployed.spec.digest) == (published.version, published.digest)
    assert deployed.spec.topics == ("deliveries.raw", "deliveries.features", "deliveries.features.dlq")
    assert Topics(connected.config).describe("deliveries.raw").partitions == 3
    records = list(read_to_end(connected.config, "deliveries.raw"))
    assert len(records) == ROWS
    produced = asset_events("kafka://localhost:9092/deliveries.raw")[-1]
    ends = Topics(connected.config).end_offsets("deliveries.raw")
    assert produced["records"] == ROWS
    assert produced["end_offsets"] == {str(partition): end for partition, end in ends.items()}
    made = asset_events(f"wasm://file{tmp_path}/registry/delivery-distance")[-1]
    assert (made["version"], made["digest"]) == (published.version, published.digest)
    places: dict[bytes, set[int]] = {}
    for record in records:
        key, value, partition = record.key(), record.value(), record.partition()
        assert isinstance(key, bytes)
        assert value is not None
        assert partition is not None
        assert value.split(b",")[1] == key
        places.setdefault(key, set()).add(partition)
    assert all(len(found) == 1 for found in places.values()), "a driver's deliveries are on one partition"

    def raw_records() -> int:
        return sum(Topics(connected.config).end_offsets("deliveries.raw").values())

    assert run_dag(dag, rows=ROWS, seed=8).state == "success"
    assert raw_records() == 2 * ROWS, "nothing is deleted"
    assert run_dag(dag, rows=ROWS, seed=9, fresh=True).state == "success"
    assert raw_records() == ROWS, "the topics are fresh"
    assert FilesystemRegistry(str(tmp_path / "registry")).versions("delivery-distance") == [published.version]


def test_the_enrichment_calls_beyond_the_partitions_and_gives_each_order_once_and_in_order(
    load: Callable[[str], ModuleType],
    run_dag: Callable[..., Any],
    connected: RunningKafka,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    dag = load("enrich_over_http").dag
    dag.get_task("enrich").retries = 0
    with SlowService(0.02) as service:
        customers = {"conn_type": "http", "host": HOST, "port": service.port}
        monkeypatch.setenv("AIRFLOW_CONN_CUSTOMERS", json.dumps(customers))
        found = ConsumerComparison(
            kafka=connected.config,
            service=service,
            topic="orders",
            enriched="orders.enriched",
            dead_letters="orders.dlq",
            partitions=3,
            run_parallel=lambda: run_dag(dag, max_concurrency=16),
        ).compare(600, 600, ProgressLines(print))
    assert (found.plain.calls, found.plain.at_once) == (600, 3)
    assert 3 < found.parallel.at_once <= 32, "two tasks of sixteen calls each"
    assert found.parallel.calls >= 600
    assert (found.enriched, found.dead_letters) == (599, 1)
    with closing(JobStatusReader(connected.config)) as board:
        standing = board.read_status("enrich-over-http")
    totals = PartitionTotals.of(standing.partitions)
    assert (totals.records_in, totals.records_out, totals.lag, totals.in_flight) == (600, 599, 0, 0)
    assert totals.dead_letters == {"TerminalFailure": 1}
    assert {each.state for each in standing.partitions} == {"stopped"}


def test_the_command_to_look_at_the_deployments_works_as_it_is_printed(
    load: Callable[[str], ModuleType], kafka: RunningKafka, tmp_path: Path
) -> None:
    command = load("delivery_pipeline")._look_next(tmp_path, kafka.config)["the deployments"]
    start, _, look = command.partition(" && ")
    assert start == "make up"
    done = subprocess.run(look, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("NAME"), done.stderr
