"""### Return to an earlier version of the delivery-time model

From the form: the version becomes the champion again, and its module replaces the one that runs in the stream, over the
same topics. The decision is recorded with the reason and the user who triggered the run. A run that failed can be
cleared: what it did is not done again.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

import demo_settings
from delivery.training_spec import MODEL
from wasmline_provider.asset_uris import model_asset
from wasmline_provider.form_choices import read_model_versions
from wasmline_provider.operators.model import CheckModelServingOperator, RollbackModelOperator

champion = model_asset(models=demo_settings.MODELS, name=MODEL)

with DAG(
    "rollback_delivery_eta",
    description="Make an earlier version of the delivery-time model the champion, and deploy its module.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=30),
    tags=["wasmline", "example"],
    params={
        "version": Param(
            None,
            type=["null", "string"],
            examples=read_model_versions(MODEL),
            title="Version",
            description="The version to return to. Empty: the champion before the current one.",
        ),
        "reason": Param(
            type="string",
            minLength=1,
            title="Reason",
            description="Why the model is rolled back. It is kept in the model's history.",
        ),
    },
) as dag:
    rollback = RollbackModelOperator(
        task_id="rollback",
        model=MODEL,
        kafka_conn_id=demo_settings.KAFKA,
        version="{{ params.version or '' }}",
        reason="{{ params.reason }}",
        outlets=[champion],
    )
    check = CheckModelServingOperator(
        task_id="check",
        model=MODEL,
        kafka_conn_id=demo_settings.KAFKA,
    )
    rollback >> check
