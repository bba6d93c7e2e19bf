"""Operator that deletes the modules of a cluster that nothing needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wasmline.errors import InvalidSpec
from wasmline_provider.argument_checks import given_number, require_numbers
from wasmline_provider.operators.user_action import UserActionOperator

if TYPE_CHECKING:
    from wasmline.control import ChangeCause
    from wasmline.kafka import KafkaConfig


class PruneModulesOperator(UserActionOperator):
    """Deletes the modules that no deployment, no generation in the history and no claim of a job refers to.

    A task that is tried again or cleared deletes what is not needed by then.

    Example::

        PruneModulesOperator(task_id="prune", keep_generations=10, reason="monthly")

    Returns ``deleted`` and ``kept``, numbers of modules, and ``size_bytes`` of the deleted ones. ``kept`` are those
    that were deployed at the same moment. Fails with UnsupportedSpecVersion if a record that this release cannot read
    may refer to a module.

    :param reason: why; required, and kept with the deletion: ``wasmline modules history``.
    :param keep_generations: delete the modules, too, that only generations before so many last ones of each transform
        have. They cannot be deployed again by a rollback. None or empty: keep those of all generations.
    :param kafka_conn_id: the connection of the cluster.
    :param by: the user of the history; by default the one who triggered the run, else the task's owner.
    """

    template_fields: Sequence[str] = ("keep_generations", *UserActionOperator.template_fields)
    output_keys = ("deleted", "kept", "size_bytes")
    ui_color = "#e9e4fd"

    def __init__(self, *, keep_generations: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_generations = keep_generations
        require_numbers(InvalidSpec, 1, keep_generations=keep_generations, kind=int)

    def _act(self, config: KafkaConfig, cause: ChangeCause) -> dict[str, Any]:
        from wasmline.control import plan_module_pruning, prune_modules

        require_numbers(InvalidSpec, 1, keep_generations=self.keep_generations, kind=int)
        plan = plan_module_pruning(config, keep_generations=given_number(self.keep_generations))
        for each in plan.lost_generations:
            self.log.info("generation %d of %s loses its module", each.generation, each.transform)
        done = prune_modules(config, plan, cause=cause)
        return {"deleted": len(done.deleted), "kept": len(done.kept), "size_bytes": done.size_bytes}
