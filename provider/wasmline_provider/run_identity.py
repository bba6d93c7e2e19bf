"""Names the user and the DAG run that the history of a deployment or a model records."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.control import ChangeCause

USER_TEMPLATE = "{{ dag_run.triggering_user_name or task.owner }}"
"""The user who triggered the run, else the task's owner."""


def run_name(context: Context) -> str:
    """Return the DAG and the run of a task."""
    return f"{context['dag_run'].dag_id}/{context['run_id']}"


def change_cause(context: Context, reason: object, by: object) -> ChangeCause:
    """Return the cause of a change by a task. Native templates may have rendered ``reason`` and ``by`` to any type."""
    from wasmline.control import ChangeCause

    texts = ("" if each is None else str(each) for each in (reason, by))
    return ChangeCause(reason=next(texts), by=next(texts), run=run_name(context))
