"""### Train the delivery-time model again, and let it go live only if it is better

Every night, when the data asks for it, or from the form: trains on the records that no run has trained on and on those
before, compares the new model with the live one on the same deliveries, and promotes it or keeps the live one. The path
of the run shows the result: **promoted**, **kept**, **skipped** with too few records, or **refused** by a user, if
the form asks for an approval. A promoted model is compiled to a transform, proven to predict what XGBoost does, and
deployed: a stream that runs switches to it at its next batch. The run fails at its end if the champion does not serve.

*When*: the timetable is in a time zone with summer time, whose days have 23, 24 or 25 hours. The asset
`delivery-eta.retrain` is watched: new records, drift, live error or age of the model start a run, and the run's first
task returns why. A backfill trains once for each day, from 03:00 to 03:00, on the day's records that no run had:
`airflow backfill create --dag-id retrain_delivery_eta --from-date 2026-01-01 --to-date 2026-01-11 --max-active-runs 1`.

*On what*: the slice of a run is recorded before the training, and found again when the run is cleared. No record is in
two slices, and however many events are lost or doubled, none is in no slice if each run is since `previous`. A day of a
backfill that is skipped, and what is before its first day, are in none: a run since the topic's beginning takes them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import (
    DAG,
    Asset,
    AssetOrTimeSchedule,
    AssetWatcher,
    CronDataIntervalTimetable,
    ExceptionRetryPolicy,
    Param,
    RetryAction,
    RetryRule,
    TriggerRule,
    get_current_context,
    task,
)

import demo_settings
from delivery.training_spec import MODEL, TRAINING
from wasmline.documents import plain
from wasmline.errors import JobBusy
from wasmline_provider.asset_events import record
from wasmline_provider.asset_uris import model_asset
from wasmline_provider.operators.deploy import WasmDeployOperator
from wasmline_provider.operators.model import (
    CheckModelServingOperator,
    CompileModelOperator,
    PromoteModelOperator,
    TrainModelOperator,
)
from wasmline_provider.triggers.retrain import RetrainTrigger

BERLIN = pendulum.timezone("Europe/Berlin")

conditions = RetrainTrigger(
    model=MODEL,
    topic=demo_settings.FEATURES,
    min_new_records=2_000,
    new_records=20_000,
    max_psi=0.25,
    max_error_growth=0.1,
    max_age_hours=14 * 24,
    predictions=demo_settings.PREDICTIONS,
    label_delay_seconds=3_600,
    cooldown_seconds=6 * 3_600,
    kafka_conn_id=demo_settings.KAFKA,
)
WAIT_FOR_OTHERS = ExceptionRetryPolicy(
    rules=[RetryRule(exception=JobBusy, retry_delay=timedelta(minutes=5), reason="another run trains")],
    default=RetryAction.FAIL,
)
"""A run waits while another one trains, for two hours at most: beside a backfill, a night does."""

retrain_asset = Asset(f"{MODEL}.retrain", group="model", watchers=[AssetWatcher("conditions", conditions)])
champion = model_asset(models=demo_settings.MODELS, name=MODEL)

with DAG(
    "retrain_delivery_eta",
    description="Train on new records, compare with the live model, promote and deploy, or keep.",
    doc_md=__doc__,
    schedule=AssetOrTimeSchedule(
        timetable=CronDataIntervalTimetable("0 3 * * *", timezone=BERLIN), assets=[retrain_asset]
    ),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(days=1),
    default_args={"retries": 5, "retry_delay": timedelta(seconds=30)},
    tags=["wasmline", "example"],
    params={
        "since": Param(
            "previous",
            type="string",
            enum=["previous", "beginning"],
            title="Since",
            description="The new records begin where the ones before ended, or at the topic's beginning.",
            section="Records",
        ),
        "since_time": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Since the time",
            description="The new records are those since this moment; wins over the field above.",
            section="Records",
        ),
        "windows": Param(
            ["all", "last 7"],
            type="array",
            items={"type": "string"},
            examples=["all", "last 1", "last 3", "last 7"],
            title="Windows",
            description="A model is trained on all records, and on those of the last so many runs; the best is chosen.",
            section="Records",
        ),
        "min_new_rows": Param(
            500,
            type="integer",
            minimum=0,
            title="Least new deliveries",
            description="With fewer usable ones since the last run, this one is skipped.",
            section="Records",
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
        "approval": Param(
            False,
            type="boolean",
            title="Ask before promoting",
            description="A better model waits for an answer under Required Actions; after 12 hours it is refused.",
            section="Gate",
        ),
    },
) as dag:

    @task(multiple_outputs=True)
    def select_slice() -> dict[str, Any]:
        """Return which records are new, and why the run was started."""
        from delivery.retrain_request import retrain_request

        context = get_current_context()
        events = context["triggering_asset_events"]
        run = context["dag_run"]
        made = retrain_request(
            run.run_type.value,
            start=run.data_interval_start and run.data_interval_start.astimezone(BERLIN),
            end=run.data_interval_end and run.data_interval_end.astimezone(BERLIN),
            payloads=[event.extra.get("payload") for each in events.values() for event in each],
            params=context["params"],
        )
        return {**plain(made), "windows": list(context["params"]["windows"])}

    selected: Any = select_slice()
    train = TrainModelOperator(
        task_id="train",
        job=f"{MODEL}-retrain",
        kafka_conn_id=demo_settings.KAFKA,
        spark_conn_id=demo_settings.SPARK,
        topic=demo_settings.FEATURES,
        since=selected["since"],
        until=selected["until"],
        windows=selected["windows"],
        min_new_rows="{{ params.min_new_rows }}",
        margin="{{ params.margin }}",
        skip_without_enough_data="{{ dag_run.run_type != 'manual' }}",
        deferrable=True,
        retries=24,
        retry_policy=WAIT_FOR_OTHERS,
        **TRAINING,
    )

    @task.branch
    def needs_approval(trained: Any, why: str) -> str:
        """Select whether a user decides on a better model."""
        from delivery.approval import approval_text

        context = get_current_context()
        context["ti"].xcom_push("text", approval_text(trained, why))
        asks = context["params"]["approval"] and trained["decision"]["decision"] == "promote"
        return "approve" if asks else "read_approval"

    approve = HITLOperator(
        task_id="approve",
        subject=f"Promote the new version of {MODEL}?",
        body="{{ ti.xcom_pull('needs_approval', key='text') }}",
        options=["Promote", "Keep the live model"],
        defaults="Keep the live model",
        response_timeout=timedelta(hours=12),
    )

    @task(multiple_outputs=True, trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    def read_approval() -> dict[str, str]:
        """Return the user who answered, and why the model is rejected, if it is."""
        from delivery.approval import approver, refusal

        given = get_current_context()["ti"].xcom_pull("approve")
        return {"by": approver(given), "rejection_reason": refusal(given)}

    approval: Any = read_approval()
    promote = PromoteModelOperator(
        task_id="promote",
        trained=train.output,
        rejection_reason=approval["rejection_reason"],
        by=approval["by"],
    )

    @task.branch
    def branch_on_decision(promotion: Any, rejection_reason: str) -> str:
        """Select the branch of the decision."""
        if promotion["decision"] == "promote":
            return "compile_model"
        return "refused" if rejection_reason else "kept"

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

    @task(outlets=[champion])
    def promoted(promotion: Any) -> str:
        """Emit the event of a new champion, which is deployed."""
        context = get_current_context()
        trained = context["ti"].xcom_pull("train")
        record(context, [champion], {**promotion, "digest": trained["digest"], "metrics": trained["metrics"]})
        return f"{promotion['live']} is live: {promotion['reason']}"

    @task
    def kept(promotion: Any) -> str:
        """Return why the live model stays."""
        return f"{promotion['live']} stays live: {promotion['reason']}"

    @task
    def refused(promotion: Any) -> str:
        """Return who kept the live model."""
        return f"{promotion['live']} stays live, and {promotion['version']} does not: {promotion['reason']}"

    @task(trigger_rule=TriggerRule.ALL_SKIPPED)
    def skipped() -> str:
        """Return why nothing was trained, with the count."""
        from delivery.retrain_request import skip_text

        ti = get_current_context()["ti"]
        return skip_text(ti.xcom_pull("train", key="skipped"), ti.xcom_pull("select_slice", key="since"))

    check_serving = CheckModelServingOperator(
        task_id="check_serving",
        model=MODEL,
        kafka_conn_id=demo_settings.KAFKA,
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
    )

    train >> (nothing := skipped())
    needs_approval(train.output, selected["why"]) >> [approve, approval]
    approve >> approval
    branch_on_decision(promote.output, approval["rejection_reason"]) >> [
        compile_model,
        stays := kept(promote.output),
        denied := refused(promote.output),
    ]
    compile_model >> deploy_model >> (goes_live := promoted(promote.output))
    [goes_live, stays, denied, nothing] >> check_serving
