"""Asks Airflow what has become of a task whose process or trigger is told to end."""

from __future__ import annotations

import logging
from typing import Protocol

from wasmline.background_call import BackgroundCall
from wasmline.repeated_errors import error_line
from wasmline_provider.stop_writer import By

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 3.0
"""Maximum seconds to wait for Airflow's answer: a process that is told to end is killed after five."""

UNFINISHED_STATES = frozenset({"queued", "scheduled", "running", "deferred", "up_for_retry", "up_for_reschedule"})
"""States of a task that nobody has ended: its process or trigger ends because its machine or its triggerer does."""

TIMED_OUT_STATE = "skipped"
"""The state of a task whose DAG run has exceeded its ``dagrun_timeout``."""


class TaskInstanceKey(Protocol):
    """What names a task instance; as Airflow's own."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int | None


def killed_by(task: TaskInstanceKey) -> By | None:
    """Return who has ended a task; None if nobody has, or if Airflow does not say so, which is logged.

    Waits for ANSWER_TIMEOUT_S at most: the thread that was interrupted may hold the connection to Airflow.
    """
    call = BackgroundCall(lambda: read_task_state(task))
    try:
        if not call.wait(ANSWER_TIMEOUT_S):
            raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S:.0f} s")
        return user_or_system(call.result())
    except Exception as error:
        warn_of_unknown_state(error)
        return None


def read_task_state(task: TaskInstanceKey) -> str | None:
    """Return a task instance's state in Airflow's database; None if it is cleared or gone. Raises what Airflow does."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    index = -1 if task.map_index is None else task.map_index
    states = RuntimeTaskInstance.get_task_states(
        dag_id=task.dag_id, task_ids=[task.task_id], run_ids=[task.run_id], map_index=index
    )
    name = task.task_id if index < 0 else f"{task.task_id}_{index}"
    state = states.get(task.run_id, {}).get(name)
    return None if state is None else str(state)


def user_or_system(state: str | None) -> By | None:
    """Return who has ended a task that is in ``state``; None if nobody has."""
    if state in UNFINISHED_STATES:
        return None
    return "system" if state == TIMED_OUT_STATE else "user"


def warn_of_unknown_state(error: Exception) -> None:
    """Log that Airflow did not say whether a user has ended the task."""
    logger.warning("Airflow does not say whether the task was ended: %s", error_line(error))
