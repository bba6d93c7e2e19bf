"""### Deploy an earlier generation of a transform again

From the form: the generation before the current one, or the last one of a version, is deployed as the next generation,
with its topics, environment and limits. The history keeps the reason and the user who triggered the run. A run that
failed can be cleared: what it did is not done again.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

import demo_settings
from wasmline_provider.form_choices import read_form_choices
from wasmline_provider.operators.deploy import WasmRollbackOperator

with DAG(
    "rollback_transform",
    description="Deploy an earlier generation of a transform again.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=30),
    tags=["wasmline", "example"],
    params={
        "transform": Param(
            type="string",
            minLength=1,
            examples=[*read_form_choices(demo_settings.KAFKA).transforms],
            title="Transform",
            description="The name that wasmline list shows. One that serves a model goes back by the DAG "
            "rollback_delivery_eta (RollbackModelOperator), with its champion.",
        ),
        "version": Param(
            None,
            type=["null", "string"],
            title="Version",
            description="The version to deploy again. Empty: the generation before the current one.",
        ),
        "expected_generation": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Current generation",
            description="The generation to replace; the run fails if another one is current. Empty: any.",
        ),
        "reason": Param(
            type="string",
            minLength=1,
            title="Reason",
            description="Why the transform is rolled back. It is kept in the history.",
        ),
    },
) as dag:
    WasmRollbackOperator(
        task_id="rollback",
        name="{{ params.transform }}",
        version="{{ params.version or '' }}",
        expected_generation="{{ params.expected_generation or '' }}",
        reason="{{ params.reason }}",
        kafka_conn_id=demo_settings.KAFKA,
    )
