"""### Actions of whoever is on call, each with a form

* `pause_transform`, `resume_transform`: jobs that run it start no further batch, and continue.
* `pause_job`, `resume_job`: the same for a job that runs a function.
* `stop_job`: ends the run of a job at its next safe point, whoever started it; it stays stopped until it is started.
* `delete_job`: deletes the order of a job that does not run; its progress stays.
* `withdraw_leases`: divides the partitions of a job in parallel mode anew.
* `set_progress`: where the next run of a stopped job continues.
* `prune_modules`: deletes the modules that nothing needs.

The forms suggest what the cluster had when this file was last parsed, and take other names as well. The history keeps
the reason of each action, and the user who triggered the run: `wasmline history`, with `--job` for a job's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

import demo_settings
from wasmline_provider.form_choices import read_form_choices
from wasmline_provider.operators.deploy import WasmPauseOperator, WasmResumeOperator
from wasmline_provider.operators.job_actions import (
    DeleteJobOperator,
    PauseJobOperator,
    ResumeJobOperator,
    SetProgressOperator,
    StopJobOperator,
    WithdrawLeasesOperator,
)
from wasmline_provider.operators.modules import PruneModulesOperator

choices = read_form_choices(demo_settings.KAFKA)

TRANSFORM = Param(
    type="string",
    minLength=1,
    examples=[*choices.transforms],
    title="Transform",
    description="The name that wasmline list shows.",
)
JOB = Param(
    type="string",
    minLength=1,
    examples=[*choices.jobs],
    title="Job",
    description="The name that wasmline jobs shows.",
)
REASON = Param(type="string", minLength=1, title="Reason", description="Why. It is kept in the history.")

FORM: dict[str, Any] = {
    "schedule": None,
    "catchup": False,
    "dagrun_timeout": timedelta(minutes=30),
    "tags": ["wasmline", "example"],
    "doc_md": __doc__,
}
ACTION: dict[str, Any] = {"reason": "{{ params.reason }}", "kafka_conn_id": demo_settings.KAFKA}

with DAG(
    "pause_transform",
    description="Pause a transform: its jobs start no further batch.",
    params={"transform": TRANSFORM, "reason": REASON},
    **FORM,
) as pause_transform:
    WasmPauseOperator(task_id="pause", name="{{ params.transform }}", **ACTION)

with DAG(
    "resume_transform",
    description="Resume a paused transform from its progress.",
    params={"transform": TRANSFORM, "reason": REASON},
    **FORM,
) as resume_transform:
    WasmResumeOperator(task_id="resume", name="{{ params.transform }}", **ACTION)

with DAG(
    "pause_job",
    description="Pause a job that runs a function: its driver waits.",
    params={"job": JOB, "reason": REASON},
    **FORM,
) as pause_job:
    PauseJobOperator(task_id="pause", job="{{ params.job }}", **ACTION)

with DAG(
    "resume_job",
    description="Resume a paused job that runs a function from its progress.",
    params={"job": JOB, "reason": REASON},
    **FORM,
) as resume_job:
    ResumeJobOperator(task_id="resume", job="{{ params.job }}", **ACTION)

with DAG(
    "stop_job",
    description="Stop the run of a job, whoever started it.",
    params={
        "job": JOB,
        "wait": Param(
            120,
            type="integer",
            minimum=0,
            title="Wait",
            description="Seconds for its end. After that the run fails, and the stop stays requested.",
        ),
        "reason": REASON,
    },
    **FORM,
) as stop_job:
    StopJobOperator(task_id="stop", job="{{ params.job }}", timeout_seconds="{{ params.wait }}", **ACTION)

with DAG(
    "delete_job",
    description="Delete the order of a job that does not run.",
    params={"job": JOB, "reason": REASON},
    **FORM,
) as delete_job:
    DeleteJobOperator(task_id="delete", job="{{ params.job }}", **ACTION)

with DAG(
    "withdraw_leases",
    description="End the current round of leases of a job in parallel mode.",
    params={"job": JOB, "reason": REASON},
    **FORM,
) as withdraw_leases:
    WithdrawLeasesOperator(task_id="withdraw", job="{{ params.job }}", **ACTION)

with DAG(
    "set_progress",
    description="Set where the next run of a stopped job continues.",
    params={
        "job": JOB,
        "to": Param(
            type="string",
            minLength=1,
            examples=["start", "end", "-1000", "+1"],
            title="Continue at",
            description="start (or earliest) or end (or latest) of the topic, an offset, so many records before (-N) "
            "or after (+N) the current progress, or the first record of a time such as 2026-11-26T16:00:00Z.",
        ),
        "partitions": Param(
            None,
            type=["null", "array"],
            items={"type": "integer", "minimum": 0},
            title="Partitions",
            description="A JSON list such as [0, 2]. Empty: all.",
        ),
        "reason": REASON,
    },
    **FORM,
) as set_progress:
    SetProgressOperator(
        task_id="set_progress",
        job="{{ params.job }}",
        to="{{ params.to }}",
        partitions="{{ params.partitions or '' }}",
        **ACTION,
    )

with DAG(
    "prune_modules",
    description="Delete the modules that nothing needs.",
    params={
        "keep_generations": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Generations to keep",
            description="Generations before so many last ones of each transform lose their modules: no rollback to "
            "them any more. Empty: all generations keep theirs.",
        ),
        "reason": REASON,
    },
    **FORM,
) as prune_modules:
    PruneModulesOperator(task_id="prune", keep_generations="{{ params.keep_generations or '' }}", **ACTION)
