"""Asks Airflow what has become of a task whose process or trigger is told to end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from wasmline.background_call import BackgroundCall

if TYPE_CHECKING:
    from wasmline.control import StoppedBy

ANSWER_TIMEOUT_S = 3.0
"""Maximum seconds to wait for Airflow's answer in a task's process, which is killed five seconds after its signal."""

TRIGGER_ANSWER_TIMEOUT_S = 15.0
"""The same in a triggerer, which asks for one trigger after the other, and gives ``on_kill`` 30 seconds."""

UNFINISHED_STATES = frozenset({"queued", "scheduled", "running", "deferred", "up_for_retry", "up_for_reschedule"})
"""States of a task that nobody has ended: its process or trigger ends because its machine or its triggerer does."""

SYSTEM_STATES = frozenset({"restarting", "skipped"})
"""States of a task that was cleared while it ran, or whose DAG run has exceeded its ``dagrun_timeout``: neither means
that a user wants the job to stay stopped."""


class TaskInstanceKey(Protocol):
    """What names a task instance; as Airflow's own."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int | None


def killed_by(task: TaskInstanceKey) -> StoppedBy | None:
    """Return who has ended a task; None if nobody has. Raises what Airflow does, and TimeoutError.

    Waits for ANSWER_TIMEOUT_S at most: the thread that was interrupted may hold the connection to Airflow.
    """
    call = BackgroundCall(lambda: read_task_instance_state(task))
    if not call.wait(ANSWER_TIMEOUT_S):
        raise TimeoutError(f"no answer within {ANSWER_TIMEOUT_S:.0f} s")
    return user_or_system(call.result())


def read_task_instance_state(task: TaskInstanceKey) -> str | None:
    """Return a task instance's state in Airflow's database; None without one or without the row. Raises as Airflow."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    index = -1 if task.map_index is None else task.map_index
    states = RuntimeTaskInstance.get_task_states(
        dag_id=task.dag_id, task_ids=[task.task_id], run_ids=[task.run_id], map_index=index
    )
    name = task.task_id if index < 0 else f"{task.task_id}_{index}"
    state = states.get(task.run_id, {}).get(name)
    return None if state is None else str(state)


def user_or_system(state: str | None) -> StoppedBy | None:
    """Return who has ended a task that is in ``state``; None if nobody has.

    A task that is marked failed and one that Airflow has failed for its missing heartbeats, without a retry left, have
    the same state: both count as a user's. A cleared task has no state until it is scheduled. The row of a task that
    has waited for long is deleted by ``airflow db clean`` in any state, as it is with its DAG run: that is no decision
    about the job.
    """
    if state is None or state in UNFINISHED_STATES:
        return None
    return "system" if state in SYSTEM_STATES else "user"
