"""### What is on the cluster, each with a form

* `list_jobs`: the jobs, with the state of their runs.
* `show_history`: who changed a transform or a job, when and why; where jobs began each generation of a transform.
* `show_logs`: the last lines that the guests of a transform have logged.
* `list_dead_letters`: the dead-letter topics, or the dead letters of one by transform, error and source: of each group
  also the reason and the position of the last one.
* `show_dead_letter`: one of them whole, with the record that failed. Of `orders.dlq-0@42`, 0 is the partition, 42 the
  offset.
* `show_progress`: where the next run of a job continues.

They change nothing. The result of a run is in the log of its task, and among its XComs: both stay in Airflow, also what
records and logs of guests hold.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

import demo_settings
from wasmline_provider.form_choices import read_form_choices
from wasmline_provider.operators.cluster_views import (
    ListDeadLettersOperator,
    ListJobsOperator,
    ShowDeadLetterOperator,
    ShowHistoryOperator,
    ShowLogsOperator,
    ShowProgressOperator,
)

choices = read_form_choices(demo_settings.KAFKA)

FORM: dict[str, Any] = {
    "schedule": None,
    "catchup": False,
    "dagrun_timeout": timedelta(minutes=30),
    "tags": ["wasmline", "example"],
    "doc_md": __doc__,
}


def name(title: str, suggestions: tuple[str, ...], description: str, *, optional: bool = False) -> Param:
    """Return the field of a name; an optional one may be empty."""
    kinds: dict[str, Any] = {"default": None, "type": ["null", "string"]} if optional else {"type": "string"}
    return Param(minLength=1, examples=[*suggestions], title=title, description=description, **kinds)


def number(title: str, description: str, minimum: int, **options: Any) -> Param:
    """Return the field of a whole number; without a default it must be filled in."""
    return Param(type="integer", minimum=minimum, title=title, description=description, **options)


with DAG("list_jobs", description="List the jobs, with the state of their runs.", **FORM) as list_jobs:
    ListJobsOperator(task_id="list", kafka_conn_id=demo_settings.KAFKA)

with DAG(
    "show_history",
    description="Show who changed a transform or a job, when and why.",
    params={
        "transform": name("Transform", choices.transforms, "Its generations.", optional=True),
        "job": name("Job", choices.jobs, "The actions on a job instead. Name a transform or a job.", optional=True),
        "limit": number("Limit", "The number of the last generations, or actions.", 1, default=100, maximum=1_000),
    },
    **FORM,
) as show_history:
    ShowHistoryOperator(
        task_id="show",
        transform="{{ params.transform or '' }}",
        job="{{ params.job or '' }}",
        limit="{{ params.limit }}",
        kafka_conn_id=demo_settings.KAFKA,
    )

with DAG(
    "show_logs",
    description="Show the last lines that the guests of a transform have logged.",
    params={
        "transform": name("Transform", choices.transforms, "The name that wasmline list shows."),
        "since": Param(
            None,
            type=["null", "string"],
            examples=["15m", "1h", "1d"],
            title="Since",
            description="An age such as 15m, or a time such as 2026-11-26T16:00:00Z. Empty: a day.",
        ),
        "limit": number("Limit", "The number of the last lines.", 1, default=200, maximum=1_000),
    },
    **FORM,
) as show_logs:
    ShowLogsOperator(
        task_id="show",
        transform="{{ params.transform }}",
        since="{{ params.since or '' }}",
        limit="{{ params.limit }}",
        kafka_conn_id=demo_settings.KAFKA,
    )

with DAG(
    "list_dead_letters",
    description="List the dead-letter topics, or count the dead letters of one.",
    params={
        "topic": name(
            "Dead-letter topic",
            choices.dead_letter_topics,
            "Whose dead letters to count. Empty: list the topics.",
            optional=True,
        ),
    },
    **FORM,
) as list_dead_letters:
    ListDeadLettersOperator(task_id="list", topic="{{ params.topic or '' }}", kafka_conn_id=demo_settings.KAFKA)

with DAG(
    "show_dead_letter",
    description="Show a dead letter whole: its failure, and the record that failed.",
    params={
        "topic": name("Dead-letter topic", choices.dead_letter_topics, "The topic of the dead letter."),
        "partition": number("Partition", "The partition of that topic.", 0, default=0),
        "offset": number("Offset", "The offset of the dead letter, such as 42 of orders.dlq-0@42.", 0),
    },
    **FORM,
) as show_dead_letter:
    ShowDeadLetterOperator(
        task_id="show",
        topic="{{ params.topic }}",
        partition="{{ params.partition }}",
        offset="{{ params.offset }}",
        kafka_conn_id=demo_settings.KAFKA,
    )

with DAG(
    "show_progress",
    description="Show where the next run of a job continues.",
    params={"job": name("Job", choices.jobs, "The name that wasmline jobs shows.")},
    **FORM,
) as show_progress:
    ShowProgressOperator(task_id="show", job="{{ params.job }}", kafka_conn_id=demo_settings.KAFKA)
