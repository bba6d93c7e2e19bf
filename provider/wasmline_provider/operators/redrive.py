"""Operator that redrives dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from wasmline.errors import InvalidRedrive
from wasmline_provider.argument_checks import given, is_final, require_names, require_text
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.operators.failures import fail_at_once
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator
from wasmline_provider.run_identity import USER_TEMPLATE, change_cause, task_name

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from wasmline.control import Redrive


class RedriveDeadLettersOperator(MultipleOutputsOperator):
    """Writes dead letters again: to the topics that they come from, to another one, or through a transform.

    Each is redriven once. A task that is tried again or cleared continues its redrive, up to the ends that the topic
    had when that began; it does not make it twice. It fails at once if dead letters cannot be redriven and stay
    pending: what was redriven stays so.

    Example::

        RedriveDeadLettersOperator(
            task_id="redrive",
            topic="orders.dlq",
            through="delivery-distance",
            reason="{{ params.reason }}",
        )

    Returns ``topic``, ``dead_letters``: how many were redriven, ``outputs``, ``failed_again``, and
    ``skipped``: how many cannot be redriven, by reason; empty unless ``allow_skipped``.

    :param topic: the dead-letter topic.
    :param reason: why; required, and kept with the redrive.
    :param to_topic: the topic to write to; None or empty for the topics that the dead letters come from.
    :param through: the transform that processes the dead letters instead, by its current version.
    :param transform: redrive the dead letters of this transform only.
    :param error: redrive the dead letters of this error only, such as ``GuestTrap`` or ``Rejected``.
    :param reason_contains: redrive the dead letters with this text in their reason only.
    :param source_topic: redrive the dead letters of records of this topic only.
    :param allow_skipped: succeed also if dead letters cannot be redriven.
    :param kafka_conn_id: Airflow's connection to the cluster.
    :param by: the user of the redrive; by default the one who triggered the run, else the task's owner.
    """

    template_fields: Sequence[str] = (
        "topic",
        "reason",
        "to_topic",
        "through",
        "transform",
        "error",
        "reason_contains",
        "source_topic",
        "kafka_conn_id",
        "by",
    )
    output_keys: ClassVar[tuple[str, ...]] = ("topic", "dead_letters", "outputs", "failed_again", "skipped")
    ui_color = "#e9e4fd"

    def __init__(
        self,
        *,
        topic: str,
        reason: str,
        to_topic: str | None = None,
        through: str | None = None,
        transform: str | None = None,
        error: str | None = None,
        reason_contains: str | None = None,
        source_topic: str | None = None,
        allow_skipped: bool = False,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        by: str = USER_TEMPLATE,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.reason = reason
        self.to_topic = to_topic
        self.through = through
        self.transform = transform
        self.error = error
        self.reason_contains = reason_contains
        self.source_topic = source_topic
        self.allow_skipped = allow_skipped
        self.kafka_conn_id = kafka_conn_id
        self.by = by
        self._require_valid()

    def _require_valid(self) -> None:
        require_text(InvalidRedrive, topic=self.topic, reason=self.reason)
        topics = {"topic": self.topic, "to_topic": self.to_topic, "source_topic": self.source_topic}
        require_names(InvalidRedrive, **topics, through=self.through)
        if is_final((self.to_topic, self.through)) and given(self.to_topic) and given(self.through):
            text = f"to_topic {self.to_topic} and through {self.through}: name one of them"
            raise InvalidRedrive(text, topic=str(self.topic))

    @fail_at_once
    def execute(self, context: Context) -> dict[str, Any]:
        from wasmline.control import DeadLetterSelection
        from wasmline.redrive import plan_redrive, run_redrive

        self._require_valid()
        kafka = KafkaHook(self.kafka_conn_id).get_conn()
        selection = DeadLetterSelection(
            transform=given(self.transform),
            error=given(self.error),
            reason_contains=given(self.reason_contains),
            source_topic=given(self.source_topic),
        )
        plan = plan_redrive(kafka, self.topic, selection, to_topic=given(self.to_topic), through=given(self.through))
        for group, count in plan.pending.items():
            self.log.info("%d dead letters of %s: %s", count, group.transform, group.error)
        done = run_redrive(
            kafka,
            plan,
            cause=change_cause(context, self.reason, self.by),
            redrive_id=task_name(context, self.task_id),
            progress=self._log_progress,
        )
        skipped = "; ".join(f"{count:,} stay pending: {why}" for why, count in done.skipped.items())
        if skipped and not self.allow_skipped:
            raise AirflowFailException(f"{done.dead_letters:,} dead letters of {done.topic} are redriven; {skipped}")
        if skipped or done.failed_again:
            self.log.warning("%d dead letters failed again; %s", done.failed_again, skipped or "none stays pending")
        return self._returns({name: getattr(done, name) for name in RedriveDeadLettersOperator.output_keys})

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        from wasmline_provider.openlineage.module_lineage import redrive_lineage

        return redrive_lineage(self, result)

    def _log_progress(self, redrive: Redrive) -> None:
        self.log.info("%d dead letters of %s are redriven", redrive.dead_letters, redrive.topic)
