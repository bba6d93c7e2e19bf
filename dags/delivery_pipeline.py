"""### From a transform in C++ to a delivery-time model

Builds `wasm_modules/delivery_distance` to WebAssembly, publishes and deploys it, runs it on Spark between two Kafka
topics, proves that every record is accounted for, trains a model on what came out, and runs the champion as one more
transform: every prediction in the stream is XGBoost's, to the bit. Everything a pipeline of one's own needs is here
once:

* operators for the steps that are always the same, plain Python tasks for what only this example knows;
* topics that exist before anything is deployed onto them: transforms never create any;
* a streaming job as a task that ends: `trigger_interval=None` runs until caught up, `deferrable=True` waits without
  holding a worker;
* what is handed on: small facts by XCom, records by Kafka, modules and models by their registries;
* where the registries and the storage are is in the connection `wasmline_default`, and in no task.

The engine's own work is in `wasmline`, the example's in `dags/delivery`; neither knows Airflow.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param, get_current_context, task

import demo_settings
from delivery.training_spec import MODEL, TRAINING
from wasmline.documents import plain
from wasmline_provider.asset_uris import model_asset, topic_asset, transform_asset
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.hooks.wasmline import WasmlineHook
from wasmline_provider.operators.build import WasmBuildOperator, WasmPublishOperator, WasmTestOperator
from wasmline_provider.operators.deploy import WasmDeployOperator
from wasmline_provider.operators.model import CompileModelOperator, PromoteModelOperator, TrainModelOperator
from wasmline_provider.operators.stream import SparkStreamOperator

if TYPE_CHECKING:
    from delivery.prediction_verification import Prediction, ScoredFeature
    from delivery.report import DemoReport, ServingFacts, StreamFacts
    from delivery.verification import DeadLetter, Raw
    from wasmline.kafka import KafkaConfig

PARTITIONS = 3

# What the topics keep is this example's whole memory, and its records carry the times of their deliveries.
KEEP = {"retention.ms": "-1"}

raw_topic = topic_asset(server=demo_settings.KAFKA_SERVER, topic=demo_settings.RAW)
features_topic = topic_asset(server=demo_settings.KAFKA_SERVER, topic=demo_settings.FEATURES)
predictions_topic = topic_asset(server=demo_settings.KAFKA_SERVER, topic=demo_settings.PREDICTIONS)
module = transform_asset(registry=demo_settings.REGISTRY, name=demo_settings.TRANSFORM)
champion = model_asset(models=demo_settings.MODELS, name=MODEL)


def note_seconds(context: Any, result: Any) -> None:
    """Store the duration of a task, for the report at the end."""
    ti = context["ti"]
    ti.xcom_push(key="step_seconds", value=round((datetime.now(UTC) - ti.start_date).total_seconds(), 1))


with DAG(
    "delivery_pipeline",
    description="Build, deploy and run a transform written in C++, train a model on what it emits, and serve it.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    is_paused_upon_creation=False,
    default_args={"post_execute": note_seconds, "retries": 0},
    dagrun_timeout=timedelta(minutes=30),
    tags=["wasmline", "example"],
    params={
        "rows": Param(45_600, type="integer", minimum=1_000, title="Deliveries", description="How many to make up."),
        "seed": Param(
            7, type="integer", minimum=0, title="Seed", description="The same seed makes the same deliveries."
        ),
        "recent": Param(
            False,
            type="boolean",
            title="Recent deliveries",
            description="The last delivery is ordered now; otherwise the first one is ordered on 2026-01-01.",
        ),
        "drift_day": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="Drift from day",
            description="From this day on deliveries take 4 minutes longer, or 8; empty for never.",
        ),
        "data": Param(
            None,
            type=["null", "string"],
            title="Data file",
            description="A CSV file of real deliveries on the worker's machine, to be used instead of made-up ones.",
        ),
        "fresh": Param(
            False,
            type="boolean",
            title="Fresh topics",
            description="Delete the topics with all that they hold, and begin anew.",
        ),
        "report": Param(
            str(demo_settings.HOME),
            type="string",
            title="Report folder",
            description="Where report.html and report.json go.",
        ),
    },
) as dag:

    @task
    def topics() -> dict[str, dict[str, int]]:
        """Make the topics, and return their end offsets; delete those of an earlier run first, if that is wanted."""
        from wasmline.kafka import Topics

        cluster = Topics(KafkaHook(demo_settings.KAFKA).get_conn())
        names = [
            demo_settings.RAW,
            demo_settings.FEATURES,
            demo_settings.DEAD_LETTERS,
            demo_settings.PREDICTIONS,
            demo_settings.UNPREDICTED,
        ]
        if get_current_context()["params"]["fresh"]:
            standing = [name for name in names if cluster.exists(name)]
            if standing:
                cluster.delete(standing)
        for name in names:
            cluster.create(name, PARTITIONS, config=KEEP, exist_ok=True)
        return {name: {str(at): end for at, end in cluster.end_offsets(name).items()} for name in names}

    build = WasmBuildOperator(task_id="build", project=demo_settings.PROJECT)
    test = WasmTestOperator(task_id="test", project=demo_settings.PROJECT)
    publish = WasmPublishOperator(
        task_id="publish",
        project=demo_settings.PROJECT,
        digest=build.output["digest"],
        outlets=[module],
    )
    deploy = WasmDeployOperator(
        task_id="deploy",
        name=demo_settings.TRANSFORM,
        version=publish.output["version"],
        kafka_conn_id=demo_settings.KAFKA,
    )

    @task(outlets=[raw_topic])
    def produce() -> dict[str, Any]:
        """Write deliveries to the raw topic; the key is the driver, whose deliveries stay in order."""
        from delivery.generator import Drift, generate
        from delivery.source_records import read_file
        from wasmline.clock import now_ms
        from wasmline.kafka import produce_all
        from wasmline_provider.asset_events import record

        context = get_current_context()
        params, kafka = context["params"], KafkaHook(demo_settings.KAFKA).get_conn()
        path = params["data"]
        made_up = generate(
            params["rows"],
            seed=params["seed"],
            end_ms=now_ms() if params["recent"] else None,
            drift=None if params["drift_day"] is None else Drift(day=params["drift_day"]),
        )
        records = read_file(Path(path)) if path else made_up
        written = produce_all(
            kafka,
            demo_settings.RAW,
            ((each.key, each.value, None, each.timestamp_ms) for each in records),
        )
        source = Path(path).name if path else f"made up, seed {params['seed']}"
        result = {"records": written, "source": source}
        record(context, [raw_topic], result, kafka=kafka)
        return result

    stream = SparkStreamOperator(
        task_id="stream",
        job=demo_settings.TRANSFORM,
        transform=demo_settings.TRANSFORM,
        kafka_conn_id=demo_settings.KAFKA,
        spark_conn_id=demo_settings.SPARK,
        max_offsets_per_trigger=20_000,
        deferrable=True,
        outlets=[features_topic],
    )

    @task
    def verify() -> dict[str, Any]:
        """Fail unless every record came out exactly once, as a right feature or a justified dead letter, in order."""
        from delivery.verification import Feature
        from delivery.verification import verify as account
        from wasmline.kafka import read_to_end

        kafka = KafkaHook(demo_settings.KAFKA).get_conn()
        raw = map(_raw, read_to_end(kafka, demo_settings.RAW))
        features = (Feature(record.key(), record.value()) for record in read_to_end(kafka, demo_settings.FEATURES))
        letters = map(_letter, read_to_end(kafka, demo_settings.DEAD_LETTERS))
        accounting: dict[str, Any] = plain(account(raw, features, letters))
        return accounting

    train = TrainModelOperator(
        task_id="train",
        job=demo_settings.TRAIN_JOB,
        kafka_conn_id=demo_settings.KAFKA,
        spark_conn_id=demo_settings.SPARK,
        topic=demo_settings.FEATURES,
        since="previous",
        deferrable=True,
        **TRAINING,
    )
    promote = PromoteModelOperator(task_id="promote", trained=train.output, outlets=[champion])
    compile_model = CompileModelOperator(
        task_id="compile_model",
        model=MODEL,
        version=promote.output["live"],
        input_topic=demo_settings.FEATURES,
        output_topic=demo_settings.PREDICTIONS,
        dead_letter_topic=demo_settings.UNPREDICTED,
    )
    deploy_model = WasmDeployOperator(
        task_id="deploy_model",
        name=MODEL,
        version=compile_model.output["version"],
        champion_only=True,
        kafka_conn_id=demo_settings.KAFKA,
    )
    predict = SparkStreamOperator(
        task_id="predict",
        job=demo_settings.PREDICT_JOB,
        transform=MODEL,
        kafka_conn_id=demo_settings.KAFKA,
        spark_conn_id=demo_settings.SPARK,
        deferrable=True,
        outlets=[predictions_topic],
    )

    @task
    def verify_predictions(champion: str, ends_before: Any) -> dict[str, Any]:
        """Fail unless each feature has one prediction of the champion, equal to XGBoost's to the bit.

        Features of earlier runs may have one of an earlier champion.
        """
        from delivery.prediction_verification import verify_predictions as verify_all
        from delivery.prediction_verification import without_earlier_champions
        from wasmline.kafka import read_to_end
        from wasmline.training import ModelRegistry

        with WasmlineHook().locate(models=None).opened() as at:
            models = ModelRegistry(at.models)
        version, model = models.load(MODEL, champion)
        rows = models.held_out(MODEL, champion)
        identity, target = version.record.dataset.identity, version.record.target
        kafka = KafkaHook(demo_settings.KAFKA).get_conn()
        reference = f"{MODEL}@{version.version}"
        features, predictions = without_earlier_champions(
            map(_scored, read_to_end(kafka, demo_settings.FEATURES)),
            map(_prediction, read_to_end(kafka, demo_settings.PREDICTIONS)),
            reference=reference,
            ends_before=ends_before[demo_settings.FEATURES],
        )
        served: dict[str, Any] = plain(
            verify_all(
                features,
                predictions,
                model=model,
                record=version.record,
                reference=reference,
                digest=version.digest,
                held_out=dict(zip(rows[identity].to_pylist(), rows[target].to_pylist(), strict=True)),
            )
        )
        return served

    @task
    def report() -> str:
        """Write the report of this run and return the page's path."""
        from delivery.html_report import write_report

        context = get_current_context()
        return str(write_report(_report(dict(context)), Path(context["params"]["report"])))

    made = topics()
    build >> test >> publish >> deploy
    made >> [deploy, produced := produce()]
    [deploy, produced] >> stream >> [verify(), train] >> promote  # nothing is promoted that is not verified
    promote >> compile_model >> deploy_model >> predict
    predict >> verify_predictions(compile_model.output["version"], made) >> report()


def _raw(message: Any) -> Raw:
    from delivery.verification import Raw

    return Raw(message.partition(), message.offset(), message.key(), message.value())


def _scored(message: Any) -> ScoredFeature:
    from delivery.prediction_verification import ScoredFeature

    return ScoredFeature(message.partition(), message.offset(), message.key(), message.value())


def _prediction(message: Any) -> Prediction:
    from delivery.prediction_verification import Prediction
    from wasmline import provenance

    origin = provenance.parse(dict(message.headers() or []).get(provenance.NAME))
    return Prediction(
        (origin.source.partition, origin.offset) if origin else None,
        str(origin.model) if origin else None,
        message.key(),
        message.value(),
    )


def _letter(message: Any) -> DeadLetter:
    from delivery.verification import DeadLetter

    return DeadLetter(message.key(), message.value(), dict(message.headers() or []))


def _report(context: dict[str, Any]) -> DemoReport:
    """Return the report: the tasks' own results, and data too large for XCom from the jobs' last reports."""
    import msgspec

    from delivery.correlations import signals
    from delivery.report import DemoReport, ModuleFacts
    from delivery.verification import Accounting
    from wasmline.control import JobTopic
    from wasmline.kafka import read_to_end
    from wasmline.training import TrainResult

    ti = context["ti"]
    found = {name: ti.xcom_pull(name) for name in STEPS}
    kafka = KafkaHook(demo_settings.KAFKA).get_conn()
    jobs = JobTopic(kafka)
    try:
        streamed, trained = (jobs.report(found[name]["job"], found[name]["run"]) for name in ("stream", "train"))
    finally:
        jobs.close()
    if streamed is None or trained is None:
        raise LookupError("a newer run of the stream or of the training replaced this one's report: run this DAG again")
    return DemoReport(
        run=context["run_id"],
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        source=found["produce"]["source"],
        module=ModuleFacts(
            name=found["publish"]["name"],
            version=found["publish"]["version"],
            digest=found["publish"]["digest"],
            size=found["publish"]["size_bytes"],
        ),
        stream=_stream_facts(streamed.result),
        serving=_serving_facts(kafka, found),
        accounting=msgspec.convert(found["verify"], Accounting),
        training=msgspec.convert(trained.result, TrainResult),
        signals=signals(record.value() for record in read_to_end(kafka, demo_settings.RAW)),
        steps={name: ti.xcom_pull(name, key="step_seconds") for name in STEPS},
        look_next=_look_next(Path(context["params"]["report"]), kafka),
    )


STEPS = (
    *("topics", "produce", "build", "test", "publish", "deploy", "stream", "verify"),
    *("train", "promote", "compile_model", "deploy_model", "predict", "verify_predictions"),
)


def _serving_facts(kafka: KafkaConfig, found: Mapping[str, Any]) -> ServingFacts:
    import msgspec

    from delivery.prediction_verification import ServedModel
    from delivery.report import ModuleFacts, ServingFacts

    compiled = found["compile_model"]
    return ServingFacts(
        module=ModuleFacts(
            name=compiled["name"],
            version=compiled["version"],
            digest=compiled["digest"],
            size=compiled["size_bytes"],
        ),
        output_topic=demo_settings.PREDICTIONS,
        served=msgspec.convert(found["verify_predictions"], ServedModel),
        explained=_explained(kafka),
    )


def _explained(kafka: KafkaConfig) -> list[str]:
    """Return the origin of the first prediction, line by line."""
    from wasmline.kafka import read_to_end
    from wasmline.lineage import RecordPosition, explain, text_lines
    from wasmline.registry import FilesystemRegistry
    from wasmline.training import ModelRegistry

    first: Any = next(read_to_end(kafka, demo_settings.PREDICTIONS))
    position = RecordPosition(topic=first.topic(), partition=first.partition(), offset=first.offset())
    with WasmlineHook().locate(registry=None, models=None).opened() as at:
        registry, models = FilesystemRegistry(at.registry), ModelRegistry(at.models)
    return [
        f"{(first.value() or b'').decode()}",
        *text_lines(explain(kafka, position, registry=registry, models=models)),
    ]


def _stream_facts(totals: Mapping[str, Any]) -> StreamFacts:
    from delivery.report import BatchPoint, StreamFacts

    return StreamFacts(
        input_topic=demo_settings.RAW,
        output_topic=demo_settings.FEATURES,
        dead_letter_topic=demo_settings.DEAD_LETTERS,
        partitions=totals["partitions"],
        batches=[
            BatchPoint(
                batch=batch["batch_id"],
                records=batch["records_in"],
                seconds=batch["duration_ms"]["triggerExecution"] / 1000,
            )
            for batch in totals["batches"]
        ],
    )


def _look_next(folder: Path, kafka: KafkaConfig) -> dict[str, str]:
    wasmline = shlex.quote(str(Path(sys.executable).with_name("wasmline")))
    return {
        "the report": str(folder / "report.html"),
        "Kafka and Airflow": "make up, then open the printed address; make down ends them",
        "the deployments": f"make up && {wasmline} list -X bootstrap.servers={kafka.bootstrap_servers}",
        "train again": "the form of the DAG retrain_delivery_eta",
    }
