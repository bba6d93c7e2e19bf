"""### Write dead letters again

From the form: what was not redriven yet of a dead-letter topic goes to the topics that it comes from, or, with a
transform, through its current version. Each is redriven once; a run that failed can be cleared, and continues.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

import demo_settings
from wasmline_provider.form_choices import read_form_choices
from wasmline_provider.operators.redrive import RedriveDeadLettersOperator

choices = read_form_choices(demo_settings.KAFKA)

with DAG(
    "redrive_dead_letters",
    description="Write the dead letters of a topic again.",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=2),
    tags=["wasmline", "example"],
    params={
        "topic": Param(
            type="string",
            minLength=1,
            examples=[*choices.dead_letter_topics],
            title="Dead-letter topic",
            description="The topics that wasmline dead-letters list shows.",
        ),
        "through": Param(
            None,
            type=["null", "string"],
            examples=[*choices.transforms],
            title="Through transform",
            description="Its current version processes them. Empty: they go back to the topics that they come from.",
        ),
        "error": Param(
            None,
            type=["null", "string"],
            examples=["Rejected", "GuestTrap", "GuestTimeout", "GuestOutOfMemory"],
            title="Error",
            description="Redrive the dead letters of this error only. Empty: all.",
        ),
        "reason": Param(
            type="string",
            minLength=1,
            title="Reason",
            description="Why the dead letters are redriven. It is kept with the redrive.",
        ),
    },
) as dag:
    RedriveDeadLettersOperator(
        task_id="redrive",
        topic="{{ params.topic }}",
        through="{{ params.through or '' }}",
        error="{{ params.error or '' }}",
        reason="{{ params.reason }}",
        kafka_conn_id=demo_settings.KAFKA,
    )
