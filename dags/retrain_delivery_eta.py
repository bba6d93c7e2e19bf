"""### Train the delivery-time model again, and let it go live only if it is better

Every night, or from the form: trains on the records of a window, compares the new model with the live one on the same
held-out deliveries, and promotes it or keeps the live one. The decision is recorded with its reason either way, and the
path that the run took shows it. A promoted model is compiled to a transform, proven to predict what XGBoost does, and
deployed: a stream that runs switches to it at its next batch. The run fails at its end if the champion does not serve.

The timetable is in a named time zone: three in the morning where the drivers are, summer time or not.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, Asset, CronTriggerTimetable, Param, TriggerRule, get_current_context, task

import demo_settings
from delivery.training_spec import MODEL, train_spec
from wasmline.documents import plain
from wasmline_provider.operators.deploy import WasmDeployOperator
from wasmline_provider.operators.model import (
    CheckModelServingOperator,
    CompileModelOperator,
    PromoteModelOperator,
    TrainModelOperator,
)

KOLKATA = pendulum.timezone("Asia/Kolkata")

champion = Asset(MODEL, group="model")

with DAG(
    "retrain_delivery_eta",
    description="Train on recent records, compare with the live model, promote and deploy, or keep.",
    doc_md=__doc__,
    schedule=CronTriggerTimetable("0 3 * * *", timezone=KOLKATA),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=1),
    tags=["wasmline", "example"],
    params={
        "hours": Param(
            0,
            type="integer",
            minimum=0,
            title="Window in hours",
            description="Train on the records of the last so many hours. 0 takes all that the topic keeps.",
            section="Window",
        ),
        "since": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Since",
            description="Train on the records since this moment; wins over the hours.",
            section="Window",
        ),
        "margin": Param(
            0.0,
            type="number",
            minimum=-0.5,
            maximum=0.5,
            title="Margin",
            description="By what share the new RMSE must be below the live one's, beyond noise; below 0 it may be that "
            "much worse.",
            section="Gate",
        ),
    },
) as dag:

    @task
    def window() -> int:
        """Return the start of the window, in Unix milliseconds; 0 is the beginning of the topic."""
        context = get_current_context()
        params, run = context["params"], context["dag_run"]
        if params["since"]:
            return int(datetime.fromisoformat(params["since"]).astimezone(KOLKATA).timestamp() * 1000)
        if params["hours"]:
            return int((run.run_after - timedelta(hours=params["hours"])).timestamp() * 1000)
        return 0

    since = window()
    train = TrainModelOperator(
        task_id="train",
        job=f"{MODEL}-retrain",
        storage=demo_settings.STORAGE,
        kafka_conn_id=demo_settings.KAFKA,
        spark_conn_id=demo_settings.SPARK,
        train={
            **plain(train_spec(topic=demo_settings.FEATURES, models=demo_settings.MODELS)),
            "since_ms": "{{ ti.xcom_pull('window') }}",
            "margin": "{{ params.margin }}",
        },
        deferrable=True,
    )
    promote = PromoteModelOperator(task_id="promote", trained=train.output, models=demo_settings.MODELS)

    @task.branch
    def decided(promotion: Any) -> str:
        """Select the branch of the decision."""
        return "compile_model" if promotion["decision"] == "promote" else "kept"

    compile_model = CompileModelOperator(
        task_id="compile_model",
        models=demo_settings.MODELS,
        model=MODEL,
        version="{{ ti.xcom_pull('promote')['live'] }}",
        registry=demo_settings.REGISTRY,
        input_topic=demo_settings.FEATURES,
        output_topic=demo_settings.PREDICTIONS,
        dead_letter_topic=demo_settings.UNPREDICTED,
    )
    deploy_model = WasmDeployOperator(
        task_id="deploy_model",
        name=MODEL,
        version="{{ ti.xcom_pull('compile_model')['version'] }}",
        registry=demo_settings.REGISTRY,
        kafka_conn_id=demo_settings.KAFKA,
        models=demo_settings.MODELS,
    )

    @task(outlets=[champion])
    def promoted(promotion: Any) -> str:
        """Emit the event of a new champion, which is deployed."""
        get_current_context()["outlet_events"][champion].extra = dict(promotion)
        return f"{promotion['live']} is live: {promotion['reason']}"

    @task
    def kept(promotion: Any) -> str:
        """Return why the live model stays."""
        return f"{promotion['live']} stays live: {promotion['reason']}"

    check_serving = CheckModelServingOperator(
        task_id="check_serving",
        model=MODEL,
        models=demo_settings.MODELS,
        registry=demo_settings.REGISTRY,
        kafka_conn_id=demo_settings.KAFKA,
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
    )

    since >> train
    decided(promote.output) >> [compile_model, stays := kept(promote.output)]
    compile_model >> deploy_model >> (goes_live := promoted(promote.output))
    [goes_live, stays] >> check_serving
