"""Names the user and the DAG run that the history of a deployment or a model records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.control import ChangeCause

USER_TEMPLATE = "{{ dag_run.triggering_user_name or task.owner }}"
"""The user who triggered the run, else the task's owner."""


def run_name(context: Context) -> str:
    """Return the DAG and the run of a task."""
    return f"{context['dag_run'].dag_id}/{context['run_id']}"


def task_name(context: Context, task_id: str) -> str:
    """Return the DAG, the run and the task, the same at each try of this task, or of this one of mapped tasks."""
    return f"{run_name(context)}/{task_id}{_mapped(context.get('ti'))}"


def task_instance_name(ti: Any) -> str:
    """Return the same of a task instance."""
    return f"{ti.dag_id}/{ti.run_id}/{ti.task_id}{_mapped(ti)}"


def _mapped(ti: Any) -> str:
    map_index = getattr(ti, "map_index", None)
    return f"/{map_index}" if isinstance(map_index, int) and map_index >= 0 else ""


def change_cause(context: Context, reason: object, by: object, *, run: str = "") -> ChangeCause:
    """Return the cause of a change by a task. Native templates may have rendered ``reason`` and ``by`` to any type.

    run: what the history names as its run; by default the DAG and its run.
    """
    from wasmline.control import ChangeCause

    texts = ("" if each is None else str(each) for each in (reason, by))
    return ChangeCause(reason=next(texts), by=next(texts), run=run or run_name(context))
