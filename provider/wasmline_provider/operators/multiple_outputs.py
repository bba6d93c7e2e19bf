"""Base of operators whose results have keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.definitions._internal.types import ArgNotSet
from airflow.sdk.definitions.xcom_arg import PlainXComArg
from airflow.sdk.exceptions import XComNotFound

from wasmline.errors import NOTES

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

WHOLE = "return_value"
"""The key of an XCom with the whole result."""


class MultipleOutputsOperator(BaseOperator):
    """Returns a mapping of which each key is an XCom, too: ``publish.output["version"]`` is an argument of other tasks.

    A key that is none of ``output_keys``, or any of a task that pushes none, raises ValueError when the DAG is parsed:
    Airflow would pass None for it. An XCom that was pushed otherwise, such as by ``post_execute``, is
    ``XComArg(task, key="…")``. Keys of a mapped task are not checked: ``expand()`` returns Airflow's MappedOperator.

    :param multiple_outputs: push each key as an XCom of its own, beside ``return_value``.
    """

    output_keys: ClassVar[tuple[str, ...]] = ()
    """The keys of the result. A subclass that returns others adds them."""

    optional_keys: ClassVar[tuple[str, ...]] = ()
    """Those of ``output_keys`` that some results do not have, and which are None in them."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _naming_task(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, *, multiple_outputs: bool = True, **kwargs: Any) -> None:
        super().__init__(multiple_outputs=multiple_outputs, **kwargs)
        self._result: Mapping[str, Any] | None = None
        """What the task returns; None before that."""

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Return what the task is to read and write, in a process that Airflow has forked to send the event."""
        return self._lineage(None)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return what the task has read and written, by its result, in a process that Airflow has forked.

        Nothing here uses a Kafka client: the task has made some, whose threads a forked process does not have.
        """
        return self._lineage(self._result)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Return what the task was to read and write, as ``get_openlineage_facets_on_complete`` does."""
        return self._lineage(None)

    def _lineage(self, result: Mapping[str, Any] | None) -> OperatorLineage[Any, Any]:
        """Return the lineage of a task with this result, None for one without.

        Where it has no dataset, Airflow sends the task's inlets and outlets.
        """
        from airflow.providers.openlineage.extractors import OperatorLineage

        return OperatorLineage()

    def _returns(self, result: dict[str, Any]) -> dict[str, Any]:
        """Keep the result for the task's lineage, and return it."""
        self._result = result
        return result

    @property
    def output(self) -> KeyedOutput:
        return KeyedOutput(self)


class KeyedOutput(PlainXComArg):
    """A reference to the result of a task, or to a key of it."""

    operator: MultipleOutputsOperator

    def __getitem__(self, item: str) -> Any:
        """Return a reference to the key, which counts as a value of its type: it is one when a task reads it."""
        known = self.operator.output_keys
        if item not in known:
            raise ValueError(
                f"the output of {self.operator.task_id} has no key {item!r}: {type(self.operator).__name__} returns "
                f"{', '.join(known)}"
            )
        for name in ("multiple_outputs", "do_xcom_push"):
            if not getattr(self.operator, name):
                raise ValueError(f"{self.operator.task_id} has {name}=False and pushes no key {item!r}: remove that")
        return KeyedOutput(self.operator, item)

    def resolve(self, context: Mapping[str, Any]) -> Any:
        """Return the XCom, which is None for a key only if the task returned None.

        A key that was not pushed is read from the whole result, such as of a run of a release that pushed only that.
        Raises XComNotFound if the result has no such key, or if there is none, such as of a task that was marked as
        successful by a user: an operator takes None for the latest version.
        """
        value = super().resolve(context)
        if self.key == WHOLE or not _is_missing(value):
            return value
        whole = PlainXComArg(self.operator).resolve(context)
        if isinstance(whole, list):  # of the mapped task instances of a group
            return [self._select(each, context) for each in whole]
        return self._select(whole, context)

    def _select(self, result: Any, context: Mapping[str, Any]) -> Any:
        if isinstance(result, Mapping) and (self.key in result or self.key in self.operator.optional_keys):
            return result.get(self.key)
        raise XComNotFound(context["ti"].dag_id, self.operator.task_id, self.key)


def _naming_task(init: Callable[..., None]) -> Callable[..., None]:
    """Return the method, whose errors name the task: Airflow shows their last two frames, and none is the DAG's."""

    @wraps(init)
    def method(self: BaseOperator, *arguments: Any, **options: Any) -> None:
        try:
            init(self, *arguments, **options)
        except Exception as error:
            note = f"{type(self).__name__}, task {getattr(self, 'task_id', options.get('task_id'))!r}"
            if note not in getattr(error, NOTES, ()):  # by the method of a base class
                error.add_note(note)
            raise

    return method


def _is_missing(value: Any) -> bool:
    """Return whether an XCom, or one of several task instances', is missing or None."""
    return value is None or (isinstance(value, list) and any(isinstance(each, ArgNotSet) for each in value))
