"""### Deploy a transform, watch it, and roll it back by itself

Builds a project, runs its sample records, publishes the module and deploys it. Then the new generation is watched: if
too many of its records become dead letters, or if its job pauses it, because too many fail or its module is unusable,
the generation before is deployed again, and the run fails. Where there is none before it, or that cannot be deployed
again, the new one is paused. While a user has paused it, the watch waits.

A specification that is deployed already makes no new generation: it is not watched, and the run ends as a success.

A release has another version than the one before: set it in `transform.yaml`, or in the form.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import AirflowFailException

import demo_settings
from wasmline_provider.operators.build import WasmBuildOperator, WasmPublishOperator, WasmTestOperator
from wasmline_provider.operators.deploy import WasmDeployOperator, WasmRollbackOperator
from wasmline_provider.sensors.deployment import WasmDeploymentSensor

FAULT = "deploy_transform: {{ ti.xcom_pull('watch', key='fault') | truncate(500) }}"

with DAG(
    "deploy_transform",
    description="Build, test, publish and deploy a transform; watch it, and roll it back if it is at fault.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 5, "retry_delay": timedelta(seconds=10)},
    tags=["wasmline", "example"],
    params={
        "project": Param(
            demo_settings.PROJECT,
            type="string",
            minLength=1,
            title="Project",
            description="The folder of the transform, with its transform.yaml, on the workers.",
        ),
        "version": Param(
            None,
            type=["null", "string"],
            title="Version",
            description="The version to publish. Empty: the one in transform.yaml.",
        ),
        "minutes": Param(
            10, type="number", minimum=0, maximum=720, title="Watch", description="Minutes since the deployment."
        ),
        "max_dead_letter_share": Param(
            0.05,
            type="number",
            minimum=0,
            maximum=1,
            title="Dead letters",
            description="The maximum share of the records that may become dead letters.",
        ),
        "reason": Param(
            type="string", minLength=1, title="Reason", description="Why it is deployed. It is kept in the history."
        ),
    },
) as dag:
    build = WasmBuildOperator(task_id="build", project="{{ params.project }}")
    test = WasmTestOperator(task_id="test", project="{{ params.project }}")
    publish = WasmPublishOperator(
        task_id="publish",
        project="{{ params.project }}",
        version="{{ params.version or '' }}",
        digest=build.output["digest"],
    )
    deploy = WasmDeployOperator(
        task_id="deploy",
        name=publish.output["name"],
        version=publish.output["version"],
        kafka_conn_id=demo_settings.KAFKA,
        reason="{{ params.reason }}",
    )
    watch = WasmDeploymentSensor(
        task_id="watch",
        name=publish.output["name"],
        generation=deploy.output["generation"],
        minutes="{{ params.minutes }}",
        max_dead_letter_share="{{ params.max_dead_letter_share }}",
        kafka_conn_id=demo_settings.KAFKA,
        fail_on_fault=False,
        timeout=timedelta(days=1).total_seconds(),
    )

    @task.short_circuit
    def is_new(made: bool) -> bool:
        """Skip the rest if the specification was deployed already."""
        return made

    @task.branch
    def decide(fault: str) -> str:
        """Continue by the result of the watch."""
        return "roll_back" if fault else "accept"

    roll_back = WasmRollbackOperator(
        task_id="roll_back",
        name=publish.output["name"],
        expected_generation=deploy.output["generation"],
        pause_if_refused=True,
        reason=FAULT,
        kafka_conn_id=demo_settings.KAFKA,
    )

    @task
    def accept() -> None:
        """End of a run whose generation stays deployed."""

    @task(retries=0)
    def fail(watched: Any) -> None:
        """Fail the run with the fault, once it is rolled back."""
        raise AirflowFailException(f"generation {watched['generation']} of {watched['name']}: {watched['fault']}")

    build >> test >> publish
    is_new(deploy.output["is_new"]) >> watch
    decide(watch.output["fault"]) >> [roll_back, accept()]
    roll_back >> fail(watch.output)
