"""Base of the operators that do what a user asks for, with a reason that the history keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wasmline.errors import InvalidSpec
from wasmline_provider.argument_checks import require_text
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.operators.failures import fail_at_once
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator
from wasmline_provider.run_identity import USER_TEMPLATE, change_cause, task_name

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.control import ChangeCause
    from wasmline.kafka import KafkaConfig


class UserActionOperator(MultipleOutputsOperator):
    """One action on a cluster.

    A task that is tried again or cleared does not repeat what it has done in its DAG run: the history names both.
    """

    template_fields: Sequence[str] = ("reason", "kafka_conn_id", "by")

    def __init__(
        self,
        *,
        reason: str,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        by: str = USER_TEMPLATE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_text(InvalidSpec, reason=reason)
        self.reason = reason
        self.kafka_conn_id = kafka_conn_id
        self.by = by

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        config = KafkaHook(self.kafka_conn_id).get_conn()
        result = self._act(config, change_cause(context, self.reason, self.by, run=task_name(context, self.task_id)))
        self.log.info("%s", result)
        return result

    def _act(self, config: KafkaConfig, cause: ChangeCause) -> dict[str, Any]:
        raise NotImplementedError
