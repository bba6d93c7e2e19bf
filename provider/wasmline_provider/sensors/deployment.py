"""Sensor that watches a generation of a transform after its deployment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from wasmline.errors import InvalidSpec
from wasmline_provider.argument_checks import require_names, require_numbers, require_set, require_text
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.operators.failures import fail_at_once
from wasmline_provider.operators.multiple_outputs import MultipleOutputsOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from wasmline.control import DeploymentHealth


class WasmDeploymentSensor(MultipleOutputsOperator, BaseSensorOperator):
    """Watches a generation for some minutes, and ends as soon as it is at fault.

    It is at fault if the share of its records that became dead letters exceeds ``max_dead_letter_share``, or if a run
    has paused it, because more records failed than its own ``max_failure_share`` allows, or its module is unusable.
    While a user has paused it, the task waits, and the time begins anew with its resumption. The task is skipped if
    another generation is deployed meanwhile. Between two looks it holds no worker. Give it retries: a cluster that does
    not answer is a failure that may pass.

    Example::

        WasmDeploymentSensor(
            task_id="watch",
            name="delivery-distance",
            generation=deploy.output["generation"],
            minutes=10,
            max_dead_letter_share=0.02,
        )

    Returns ``name``, ``generation``, the ``records`` and ``dead_letters`` by then, and ``fault``: what is wrong with
    it, or "". A time without any records has no fault, and a warning in the log.

    :param name: the transform.
    :param generation: the generation to watch.
    :param minutes: the time since its deployment or resumption for which it is watched.
    :param max_dead_letter_share: the maximum share of its records that may become dead letters, from 0 to 1.
    :param min_records: records from which on the share is judged before the end of the time.
    :param fail_on_fault: fail the task, without a retry, if there is a fault; otherwise it only returns it.
    :param kafka_conn_id: Airflow's connection to the cluster.
    :param poke_interval: seconds between two looks.
    :param timeout: seconds after which the task fails, from its start: more than ``minutes``; by default Airflow's.
    :param mode: ``reschedule`` frees the worker between two looks, ``poke`` keeps it.
    """

    template_fields: Sequence[str] = (
        "name",
        "generation",
        "minutes",
        "max_dead_letter_share",
        "min_records",
        "kafka_conn_id",
    )
    output_keys = ("name", "generation", "records", "dead_letters", "fault")
    ui_color = "#e9e4fd"

    def __init__(
        self,
        *,
        name: str,
        generation: int | str,
        minutes: float | str = 10,
        max_dead_letter_share: float | str = 0.05,
        min_records: int | str = 100,
        fail_on_fault: bool = True,
        kafka_conn_id: str = KafkaHook.default_conn_name,
        poke_interval: float = 15,
        mode: str = "reschedule",
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, mode=mode, **kwargs)
        self.name = name
        self.generation = generation
        self.minutes = minutes
        self.max_dead_letter_share = max_dead_letter_share
        self.min_records = min_records
        self.fail_on_fault = fail_on_fault
        self.kafka_conn_id = kafka_conn_id
        self._check()

    def _check(self) -> None:
        """Reject what cannot be watched, as far as it is known. Raises InvalidSpec."""
        require_text(InvalidSpec, name=self.name)
        require_names(InvalidSpec, name=self.name)
        watch = {"generation": self.generation, "minutes": self.minutes, "min_records": self.min_records}
        require_set(InvalidSpec, **watch, max_dead_letter_share=self.max_dead_letter_share)
        require_numbers(InvalidSpec, 1, kind=int, generation=self.generation)
        require_numbers(InvalidSpec, 0, minutes=self.minutes)
        require_numbers(InvalidSpec, 0, 1, max_dead_letter_share=self.max_dead_letter_share)
        require_numbers(InvalidSpec, 0, kind=int, min_records=self.min_records)

    @fail_at_once
    def poke(self, context: Context) -> PokeReturnValue:
        from wasmline.clock import now_ms
        from wasmline.control import read_deployment_health

        self._check()
        health = read_deployment_health(KafkaHook(self.kafka_conn_id).get_conn(), self.name)
        deployment = health.deployment
        if deployment.generation != int(self.generation):
            current = f"generation {deployment.generation} of {self.name} is deployed"
            raise AirflowSkipException(f"{current}, and {self.generation} is not watched any more")
        if health.paused_by:
            self.log.info("generation %s of %s is paused by %s", self.generation, self.name, health.paused_by)
            return PokeReturnValue(False)
        is_over = now_ms() - deployment.updated_ms >= 60_000 * float(self.minutes)
        fault = self._fault(health, is_over)
        self.log.info("%d records, %d dead letters, %s", health.records, health.dead_letters, fault or "no fault")
        if fault and self.fail_on_fault:
            raise AirflowFailException(f"generation {self.generation} of {self.name} is at fault: {fault}")
        if is_over and not health.records:
            self.log.warning("no job has read a record with generation %s of %s", self.generation, self.name)
        result = {
            "name": self.name,
            "generation": deployment.generation,
            "records": health.records,
            "dead_letters": health.dead_letters,
            "fault": fault,
        }
        return PokeReturnValue(is_over or fault != "", result)

    def _fault(self, health: DeploymentHealth, is_over: bool) -> str:
        """Return what is wrong with the generation, "" if nothing is."""
        if health.deployment.state == "paused":
            return f"it is paused: {health.deployment.reason}"
        is_enough = is_over or health.records >= int(self.min_records)
        if is_enough and health.dead_letter_share > float(self.max_dead_letter_share):
            return (
                f"{health.dead_letters:,} of {health.records:,} records became dead letters, "
                f"more than {float(self.max_dead_letter_share):.1%}"
            )
        return ""
