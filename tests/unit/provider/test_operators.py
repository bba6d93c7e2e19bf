"""What every operator owes Airflow: templates of its own arguments, taken as they are."""

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from support.eta_model import eta_record
from support.gated_models import METRICS, publish_gated
from support.outlet_events import OutletEvents
from wasmline import redrive
from wasmline.documents import plain
from wasmline.errors import Conflict, InvalidJob, InvalidTrainSpec, PrerequisiteMissing
from wasmline.job_specs import (
    FunctionSpec,
    JobReport,
    JobSpec,
    JobState,
    SliceRequest,
    StreamSpec,
    TrainSpec,
    stream_of,
)
from wasmline.registry import ArtifactMetadata, Version
from wasmline.training import GatePolicy, ModelRegistry, PromotionLog
from wasmline.wasm import Schema
from wasmline_provider.asset_uris import model_asset
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.operators.build import WasmBuildOperator, WasmPublishOperator, WasmTestOperator
from wasmline_provider.operators.deploy import WasmDeployOperator, WasmRollbackOperator
from wasmline_provider.operators.model import (
    TRAINING,
    CheckModelServingOperator,
    CompileModelOperator,
    PromoteModelOperator,
    RollbackModelOperator,
    TrainModelOperator,
)
from wasmline_provider.operators.redrive import RedriveDeadLettersOperator
from wasmline_provider.operators.stream import SparkStreamOperator

JOB: dict[str, Any] = {"job": "{{ job }}", "storage": "{{ storage }}"}
OPERATORS: dict[type[BaseOperator], dict[str, Any]] = {
    WasmBuildOperator: {"project": "{{ project }}"},
    WasmTestOperator: {"project": "{{ project }}"},
    WasmPublishOperator: {"project": "{{ project }}", "registry": "{{ registry }}"},
    WasmDeployOperator: {"name": "{{ name }}", "registry": "{{ registry }}"},
    RedriveDeadLettersOperator: {name: f"{{{{ {name} }}}}" for name in RedriveDeadLettersOperator.template_fields},
    WasmRollbackOperator: {name: f"{{{{ {name} }}}}" for name in WasmRollbackOperator.template_fields},
    SparkStreamOperator: {**JOB, "transform": "{{ transform }}"},
    TrainModelOperator: {**JOB, **{name: f"{{{{ {name} }}}}" for name in TRAINING}},
    CompileModelOperator: {name: f"{{{{ {name} }}}}" for name in CompileModelOperator.template_fields},
    RollbackModelOperator: {name: f"{{{{ {name} }}}}" for name in RollbackModelOperator.template_fields},
    CheckModelServingOperator: {name: f"{{{{ {name} }}}}" for name in CheckModelServingOperator.template_fields},
    PromoteModelOperator: {"trained": {"model": "{{ model }}"}, "models": "{{ models }}"},
}


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_templated_fields_are_arguments_taken_unchanged(operator: type[BaseOperator]) -> None:
    arguments = OPERATORS[operator]
    made = operator(task_id="one", **arguments)
    known = {
        name for base in operator.__mro__ if base is not BaseOperator for name in inspect.signature(base).parameters
    }
    assert set(made.template_fields) <= known
    for name, value in arguments.items():
        assert getattr(made, name) is value
        assert name in made.template_fields


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__)
def test_each_operator_shows_an_example_and_explains_its_arguments(operator: type[BaseOperator]) -> None:
    text = inspect.getdoc(operator) or ""
    assert "Example::" in text
    for name in OPERATORS[operator]:
        assert f":param {name}:" in text or f":param {name}:" in (inspect.getdoc(operator.__mro__[1]) or "")


def test_a_deployment_has_what_the_operator_was_given() -> None:
    declared = {"input-topic": "in", "output-topics": ["out"]}
    metadata = ArtifactMetadata(transform=declared)
    version = Version(name="t", version="1.0.0", digest=f"sha256:{'a' * 64}", size_bytes=1, metadata=metadata)
    orders = {"id": 7, "definition": "{}", "format": "avro", "subject": "orders-value"}
    chosen: dict[str, Any] = {"schemas": [orders], "clock": "redpanda", "provenance": False}
    spec = WasmDeployOperator(task_id="one", name="t", registry="/r", **chosen)._spec(version)
    assert spec.schemas == (Schema(id=7, definition="{}", format="avro", subject="orders-value"),)
    assert (spec.clock, spec.provenance) == ("redpanda", False)


def test_a_stream_for_ever_may_be_stopped_and_one_until_caught_up_may_not() -> None:
    until_caught_up = SparkStreamOperator(task_id="one", transform="t", **JOB)
    for_ever = SparkStreamOperator(task_id="two", transform="t", trigger_interval="1 second", **JOB)
    assert not until_caught_up.may_be_stopped
    assert for_ever.may_be_stopped


ENRICH: dict[str, Any] = {
    "job": "enrich",
    "storage": "/folder",
    "mode": "parallel",
    "function": "enrichment:enrich",
    "topic": "orders",
}


def stream(**arguments: Any) -> SparkStreamOperator:
    return SparkStreamOperator(task_id="one", **arguments)


def test_a_stream_is_told_all_that_its_operator_was_given() -> None:
    made = stream(
        **ENRICH,
        dead_letter_topic="orders.dlq",
        batch_size=10,
        max_attempts=5,
        retry_delay_ms=200,
        ordering="PARTITION",
        max_concurrency=100,
        delivery="Exactly_Once",
        trigger_interval="1 second",
        starting_offsets="latest",
        fail_on_data_loss="False",
        fail_on_moved_progress="False",
        commit_interval_ms=50,
        lease_seconds=60,
        tasks=2,
        metrics_port=0,
    )
    assert made.spec({}) == JobSpec(
        job="enrich",
        run="",
        storage="/folder",
        metrics_port=0,
        stream=StreamSpec(
            function=FunctionSpec(
                function="enrichment:enrich",
                topic="orders",
                dead_letter_topic="orders.dlq",
                batch_size=10,
                max_attempts=5,
                retry_delay_ms=200,
            ),
            mode="parallel",
            ordering="partition",
            max_concurrency=100,
            delivery="exactly_once",
            trigger_interval="1 second",
            starting_offsets="latest",
            fail_on_data_loss=False,
            fail_on_moved_progress=False,
            commit_interval_ms=50,
            lease_seconds=60.0,
            tasks=2,
        ),
    )


def test_a_stream_whose_mode_is_a_template_may_have_the_arguments_of_both() -> None:
    arguments: dict[str, Any] = {"max_concurrency": 100, "max_offsets_per_trigger": 7, "ordering": "KEY"}
    made = stream(job="j", storage="/s", transform="t", mode="{{ params.mode }}", **arguments)
    for mode in ("microbatch", "PARALLEL"):
        made.mode = mode  # as Airflow renders it
        found = stream_of(made.spec({}))
        assert (found.mode, found.ordering, found.max_concurrency) == (mode.lower(), "key", 100)


def test_a_stream_takes_its_numbers_as_text_and_leaves_out_what_templates_left_empty() -> None:
    made = stream(
        **ENRICH, trigger_interval="{{ params.pause }}", max_concurrency="{{ params.calls }}", tasks="{{ x }}"
    )
    made.trigger_interval, made.max_concurrency, made.tasks = "None", "100", ""  # as Airflow renders them
    made.lease_seconds = "60"
    spec = made.spec({}).stream
    assert spec is not None
    assert (spec.trigger_interval, spec.max_concurrency, spec.tasks, spec.lease_seconds) == (None, 100, None, 60.0)
    assert not made.may_be_stopped


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"ordering": "keys"}, "ordering is 'keys': one of key, partition, unordered"),
        ({"delivery": "{{ d }}", "ordering": "keys"}, "ordering is 'keys'"),
        ({"mode": "batch"}, "mode is 'batch': one of microbatch, parallel"),
        ({"mode": "microbatch"}, "mode microbatch runs transforms: enrichment:enrich needs mode parallel"),
        ({"topic": None}, "enrichment:enrich has no topic"),
        ({"function": "enrichment.enrich"}, "write module:function"),
        ({"transform": "t"}, "exactly one of transform and function"),
        ({"function": None}, "topic: for a function only"),
        ({"max_concurrency": 0}, "max_concurrency must be at least 1, got 0"),
        ({"max_concurrency": "many"}, "max_concurrency: expected a whole number or None, got text"),
        ({"max_attempts": "many"}, "max_attempts: expected a whole number or None, got text"),
        ({"max_offsets_per_trigger": 7, "shards": 2}, "shards: for mode microbatch only, and mode is 'parallel'"),
        ({"max_attempts": 0}, "max_attempts must be at least 1, got 0"),
        ({"trigger_interval": "often"}, "is not an interval such as '5 seconds'"),
        ({"metrics_port": 70_000}, "metrics_port must be from 0 to 65535, got 70000"),
        ({"job": "a job"}, "'a job' is not a job name"),
    ],
)
def test_a_stream_that_cannot_run_is_refused_when_the_dag_is_parsed(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidJob, match=told):
        stream(**{**ENRICH, **arguments})


def test_what_another_task_returns_is_left_for_the_run() -> None:
    with DAG("late", schedule=None):
        deployed = WasmDeployOperator(task_id="deploy", name="t", registry="/r")
        made = stream(job="j", storage="/s", transform=deployed.output, mode="parallel", ordering="KEY")
    assert made.upstream_task_ids == {"deploy"}


TRAIN: dict[str, Any] = {
    "model": "m",
    "topic": "t",
    "models": "/folder",
    "fields": {"x": "double", "y": "double", "id": "string"},
    "features": ["x"],
    "target": "y",
    "identity": "id",
}


def test_a_training_may_have_its_numbers_as_text_as_templates_give_them() -> None:
    spec = trained_with(since_ms="1700000000000", margin="0.05", trees="", segments=None).train
    assert spec is not None
    assert (spec.since_ms, spec.margin, spec.trees, spec.features) == (1_700_000_000_000, 0.05, 60, ("x",))


def test_the_arguments_of_a_training_are_the_fields_of_its_spec() -> None:
    assert [*TRAINING, "slice"] == [*(each.name for each in fields(TrainSpec) if each.name != "slice"), "slice"]
    assert set(TRAINING) < inspect.signature(TrainModelOperator).parameters.keys()


def slice_of(**arguments: Any) -> SliceRequest | None:
    made = TrainModelOperator(task_id="one", job="one", storage="/s", slice_key="dag/run", **TRAIN, **arguments)
    train = made.spec({}).train
    assert train
    return train.slice


@pytest.mark.parametrize(
    ("since", "until", "request_"),
    [
        ("previous", "now", SliceRequest(run="dag/run")),
        ("beginning", {"0": 5}, SliceRequest(run="dag/run", since="beginning", until={"0": 5})),
        ("1700000000000", 1_700_000_000_001, SliceRequest(run="dag/run", since=1700000000000, until=1700000000001)),
        (
            "2026-01-01 00:00:00+00:00",
            datetime(2026, 1, 2, 5, 30, tzinfo=ZoneInfo("Asia/Kolkata")),
            SliceRequest(run="dag/run", since=1_767_225_600_000, until=1_767_312_000_000),
        ),
    ],
)
def test_a_training_asks_for_the_slice_of_its_run(since: Any, until: Any, request_: SliceRequest) -> None:
    assert slice_of(since=since, until=until) == request_


@pytest.mark.parametrize("nothing", ["", "None", " ", None])
def test_a_bound_of_a_slice_that_a_template_rendered_to_nothing_has_its_default(nothing: Any) -> None:
    assert slice_of(since="previous", until=nothing) == SliceRequest(run="dag/run")
    assert slice_of(since=nothing, until=nothing) is None


def test_a_training_without_since_asks_for_no_slice() -> None:
    assert slice_of() is None


def test_a_redrive_returns_its_own_keys_whatever_a_subclass_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(RedriveDeadLettersOperator):
        output_keys = (*RedriveDeadLettersOperator.output_keys, "counted")

        def execute(self, context: Any) -> dict[str, Any]:
            return {**super().execute(context), "counted": 1}

    own = {"topic": "t.dlq", "dead_letters": 2, "outputs": 1, "failed_again": 1, "skipped": {}}
    monkeypatch.setattr(KafkaHook, "get_conn", lambda self: None)
    monkeypatch.setattr(redrive, "plan_redrive", lambda *arguments, **options: SimpleNamespace(pending={}))
    monkeypatch.setattr(redrive, "run_redrive", lambda *arguments, **options: SimpleNamespace(**own))
    made = Counted(task_id="one", topic="t.dlq", reason="why", by="ada")
    run = SimpleNamespace(dag_id="d", run_id="r", triggering_user_name=None)
    ti = SimpleNamespace(map_index=-1, dag_id="d", run_id="r", task_id="one")
    assert made.execute({"dag_run": run, "run_id": "r", "ti": ti}) == {**own, "counted": 1}


@pytest.mark.parametrize("value", ["2026-01-01", "2026-01-01+00:00", "yesterday", "1767225600", True])
def test_a_bound_of_a_slice_that_is_none_is_refused_with_what_it_may_be(value: Any) -> None:
    with pytest.raises(InvalidTrainSpec) as caught:
        slice_of(since="previous", until=value)
    told = (
        f"until is {str(value)!r}; it may be now, the end offset of each partition, a date and time with a UTC offset"
    )
    assert str(caught.value).startswith(told)
    with pytest.raises(InvalidTrainSpec, match=r"since is .*; it may be previous, beginning, a date"):
        slice_of(since=str(value))


def test_digits_are_unix_milliseconds_though_they_could_be_a_date() -> None:
    found = slice_of(since="1767010100000", until="1795011512000")
    assert found
    assert (found.since, found.until) == (1_767_010_100_000, 1_795_011_512_000)


def test_end_offsets_may_have_numbers_of_partitions_and_nothing_else() -> None:
    found = slice_of(since="previous", until={0: "5", "1": 6})
    assert found
    assert found.until == {"0": 5, "1": 6}
    with pytest.raises(
        InvalidTrainSpec, match=r"one cannot be ordered: slice\.until\[.*\]: expected a whole number, got text"
    ):
        slice_of(since="previous", until={"0": "end"})


def trained_with(**more: Any) -> JobSpec:
    return TrainModelOperator(task_id="one", job="one", storage="/s", **{**TRAIN, **more}).spec({})


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"since": None, "until": "2026-01-01T00:00+00:00"}, "until needs since: set since, such as since='previous'"),
        ({"features": ["x", "z"]}, "fields lacks the type of z"),
        ({"target": "x"}, "features contains the target x"),
        ({"fields": {"x": "float", "y": "double", "id": "string"}}, "fields.*unknown value 'float'"),
        ({"trees": "many"}, "trees: expected a whole number, got text"),
        ({"units": {1: "km"}}, "key in units: expected text, got a whole number"),
        ({"margin": 1}, "margin must be below 1, got 1"),
        ({"windows": ["last 7 days"]}, "windows has 'last 7 days'"),
        ({"since": None, "windows": ["last 7"]}, "windows needs a slice: set since='previous'"),
        ({"since": "yesterday"}, "since is 'yesterday'"),
        ({"model": " "}, "model is ' ': it must be set"),
        ({"skip_without_enough_data": "perhaps"}, "skip_without_enough_data is 'perhaps': True or False"),
        ({"topic": "{{ params.topic }}", "target": "z"}, "fields lacks the type of z"),
        ({"since": "{{ params.since }}", "holdout_share": 0}, "holdout_share must be between 0 and 1"),
    ],
)
def test_what_cannot_be_trained_with_is_refused_when_the_dag_is_parsed(arguments: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidTrainSpec, match=error):
        TrainModelOperator(task_id="one", job="one", storage="/s", **{**TRAIN, "since": "previous", **arguments})


def test_an_argument_that_a_training_lacks_or_does_not_have_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(TypeError, match="segment"):
        trained_with(segment=["x"])
    with pytest.raises(TypeError, match="missing keyword argument 'target'"):
        TrainModelOperator(task_id="one", **JOB, **{name: TRAIN[name] for name in TRAIN if name != "target"})


def test_a_training_that_is_not_known_when_the_dag_is_parsed_is_left_to_the_task() -> None:
    TrainModelOperator(task_id="one", **JOB, **{**TRAIN, "target": "{{ params.target }}"})
    made = TrainModelOperator(task_id="two", job="j", storage="/s", **{**TRAIN, "margin": "{{ params.margin }}"})
    made.margin = "2"
    with pytest.raises(InvalidTrainSpec, match=r"margin must be below 1, got 2\.0"):
        made.spec({})


def test_each_instance_of_a_mapped_task_has_a_slice_of_its_own_and_any_other_task_that_of_its_run() -> None:
    run = SimpleNamespace(dag_id="nightly", run_id="manual__1")
    made = TrainModelOperator(task_id="train", job="one", storage="/s", since="previous", **TRAIN)
    keys = []
    for index in (-1, 0, 1):
        ti = SimpleNamespace(task_id="train", map_index=index)
        keys.append(made.render_template(made.slice_key, {"dag_run": run, "run_id": "r", "ti": ti}))  # type: ignore[typeddict-item]
    assert keys == ["nightly/manual__1", "nightly/manual__1/train/0", "nightly/manual__1/train/1"]


def test_a_training_of_too_few_new_rows_is_skipped_with_the_count() -> None:
    made = TrainModelOperator(task_id="one", job="one", storage="/s", since="previous", **TRAIN)
    result = {"skipped": True, "new_offsets": 7, "new_rows": 3}
    report = JobReport.now("one", "r", JobState.SUCCEEDED, "t has 3 usable rows", result=result)
    pushed: dict[str, Any] = {}
    context: Any = {"ti": SimpleNamespace(xcom_push=pushed.__setitem__)}
    with pytest.raises(AirflowSkipException, match="t has 3 usable rows"):
        made.result(report, context)
    assert pushed == {"skipped": {"reason": "t has 3 usable rows", **result}}


@pytest.mark.parametrize("skips", [True, "True", False, "False"])
def test_a_training_without_enough_data_fails_at_once_or_is_skipped_as_its_argument_says(
    skips: bool | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = JobReport.now("one", "r", JobState.FAILED, "90 rows, and min_rows is 500", error="NotEnoughData")

    @contextmanager
    def client(self: TrainModelOperator) -> Iterator[Any]:
        yield SimpleNamespace(report=lambda run: report)

    monkeypatch.setattr(TrainModelOperator, "_client", client)
    made = TrainModelOperator(task_id="one", job="one", storage="/s", skip_without_enough_data="{{ x }}", **TRAIN)
    made.skip_without_enough_data = skips  # as Airflow renders it
    pushed: dict[str, Any] = {}
    context: Any = {"ti": SimpleNamespace(xcom_push=pushed.__setitem__)}
    is_skipped = str(skips) == "True"
    with pytest.raises(AirflowSkipException if is_skipped else AirflowFailException, match="90 rows, and min_rows is"):
        made.execute_complete(context, {"job": "one", "run": "r", "log": "driver.log", "state": "failed"})
    assert ("90 rows" in str(pushed)) == is_skipped
    report = replace(report, error="TopicNotFound")
    with pytest.raises(AirflowFailException):
        made.execute_complete(context, {"job": "one", "run": "r", "log": "driver.log", "state": "failed"})


def test_a_promotion_keeps_the_user_who_triggered_its_run(tmp_path: Path) -> None:
    models = str(tmp_path)
    record = eta_record()
    ModelRegistry(models).publish(record, b"{}")
    trained = {
        "model": "eta",
        "version": "1.0.0",
        "decision": {"decision": "promote", "reason": "better"},
        "champion": None,
        "champion_metrics": None,
        "metrics": plain(record.metrics),
        "run": "run-1",
    }
    context: Any = {"dag_run": SimpleNamespace(triggering_user_name="ada")}
    for settings in ({"rejection_reason": "not approved in time"}, {}):
        PromoteModelOperator(task_id="one", trained=trained, models=models, **settings).execute(context)
    context["dag_run"].triggering_user_name = None  # a scheduled run
    trained |= {"champion": "1.0.0", "run": "run-2"}
    PromoteModelOperator(task_id="one", trained=trained, models=models).execute(context)
    history = PromotionLog(models).history("eta")
    assert [each.by for each in history] == ["", "ada", ""], "nobody answered in time"
    assert [(each.run, each.spec_version) for each in history] == [("run-1", 1), ("run-1", 1), ("run-2", 1)]


def test_a_better_model_that_a_user_refuses_is_kept_with_the_user_and_the_reason(tmp_path: Path) -> None:
    models = str(tmp_path)
    (version,) = publish_gated(models, 12)
    trained = {
        "model": "eta",
        "version": version,
        "decision": {"decision": "promote", "reason": "better"},
        "champion": None,
        "champion_metrics": None,
        "metrics": plain(METRICS),
        "policy": plain(GatePolicy()),
        "run": "run-1",
    }
    context: Any = {"dag_run": SimpleNamespace(triggering_user_name="ada")}
    results = [
        PromoteModelOperator(task_id="one", trained=trained, models=models, **answer).execute(context)
        for answer in ({"rejection_reason": "not approved by bob", "by": "bob"}, {"rejection_reason": "", "by": "eve"})
    ]
    assert [each["live"] for each in results] == [None, version]
    denied, approved = PromotionLog(models).history("eta")
    assert (denied.decision, denied.refusal, denied.by) == ("keep", "user", "bob")
    assert denied.reason == "not approved by bob. better"
    assert (approved.decision, approved.refusal, approved.by) == ("promote", "", "eve")


def test_an_approval_promotes_over_no_champion_that_the_user_has_not_seen(tmp_path: Path) -> None:
    models = str(tmp_path)
    worse, better = publish_gated(models, 3, 12)
    trained = {
        "model": "eta",
        "decision": {"decision": "promote", "reason": "no champion yet"},
        "champion": None,
        "champion_metrics": None,
        "metrics": plain(METRICS),
        "policy": plain(GatePolicy()),
    }
    context: Any = {"dag_run": SimpleNamespace(triggering_user_name=None)}

    def promote(version: str, **answer: str) -> None:
        operator = PromoteModelOperator(
            task_id="one", trained={**trained, "version": version, "run": version}, models=models, **answer
        )
        operator.execute(context)

    promote(worse)
    with pytest.raises(Conflict, match=r"1\.0\.0 is live, not nothing.* ask again"):
        promote(better, by="bob")
    promote(better, rejection_reason="not approved by bob", by="bob")
    assert [each.live for each in PromotionLog(models).history("eta")] == [worse, worse]


def test_a_promotion_is_decided_anew_if_another_model_was_promoted_meanwhile(tmp_path: Path) -> None:
    models = str(tmp_path)
    versions = publish_gated(models, 12, 3)
    champion = model_asset(models=models, name="eta")
    context: Any = {"dag_run": SimpleNamespace(triggering_user_name=None), "outlet_events": OutletEvents()}
    results = []
    for version in versions:
        trained = {
            "model": "eta",
            "version": version,
            "decision": {"decision": "promote", "reason": "no champion yet"},
            "champion": None,
            "champion_metrics": None,
            "metrics": plain(METRICS),
            "policy": plain(GatePolicy(segments=("vehicle",))),
            "run": f"run-{version}",
            "digest": f"digest of {version}",
        }
        operator = PromoteModelOperator(task_id="one", trained=trained, models=models, outlets=[champion])
        results.append(operator.execute(context))
        event = context["outlet_events"][champion].extra
        assert event == {**results[-1], "digest": trained["digest"], "metrics": trained["metrics"]}
        assert operator.execute(context) == results[-1], "a task that is tried again"
    assert [(each["decision"], each["champion"], each["live"]) for each in results] == [
        ("promote", None, "1.0.0"),
        ("keep", "1.0.0", "1.0.0"),
    ]
    assert "not below 1.0000 beyond noise" in results[1]["reason"]


LOCAL = {"conn_type": "spark", "host": "local"}

STANDALONE = {"conn_type": "spark", "host": "spark://master:7077", "extra": {"deploy-mode": "cluster"}}


@pytest.mark.parametrize(
    ("connection", "options", "error"),
    [
        (STANDALONE, {}, "runs no Python driver in deploy mode cluster"),
        (STANDALONE, {"launcher": "l"}, "leave out the launcher"),
        (LOCAL, {"conf": {"spark.my.password": "p"}}, "looks like a secret"),
        (
            LOCAL,
            {"spark_options": {"colour": "blue"}},
            "options colour are not among",
        ),
    ],
)
def test_settings_of_spark_that_cannot_run_are_refused_when_the_dag_is_parsed(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], options: dict[str, Any], error: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    with pytest.raises((PrerequisiteMissing, ValueError), match=error):
        stream(job="j", storage="/s", transform="t", **options)


def test_settings_of_spark_that_are_not_known_when_the_dag_is_parsed_are_left_to_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream(job="j", storage="/s", transform="t", spark_conn_id="of_another_environment")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(STANDALONE))
    stream(job="j", storage="/s", transform="t", conf={"spark.submit.deployMode": "{{ params.mode }}"})
    stream(job="j", storage="/s", transform="t", conf="{{ params.conf }}")
    with DAG("d", schedule=None):
        settings = BaseOperator(task_id="settings")
        task = SparkStreamOperator(task_id="s", job="j", storage="/s", transform="t", conf=settings.output)
    assert task.upstream_task_ids == {"settings"}
    keytab = {**STANDALONE, "extra": {"deploy-mode": "cluster", "keytab": "a2V5", "principal": "p"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(keytab))
    stream(job="j", storage="/s", transform="t")  # which would write the keytab to a file
