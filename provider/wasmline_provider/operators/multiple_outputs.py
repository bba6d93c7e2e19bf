"""Base of operators whose results have keys."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.definitions.xcom_arg import PlainXComArg


class MultipleOutputsOperator(BaseOperator):
    """Returns a mapping of which each key is an XCom, too: ``publish.output["version"]`` is an argument of other tasks.

    A key that is none of ``output_keys`` raises ValueError when the DAG is parsed: Airflow would pass None for it. An
    XCom that was pushed otherwise, such as by ``post_execute``, is ``XComArg(task, key="…")``.

    :param multiple_outputs: push each key as an XCom of its own, beside ``return_value``.
    """

    output_keys: ClassVar[tuple[str, ...]] = ()
    """The keys of the result. A subclass that returns others adds them."""

    def __init__(self, *, multiple_outputs: bool = True, **kwargs: Any) -> None:
        super().__init__(multiple_outputs=multiple_outputs, **kwargs)

    @property
    def output(self) -> KeyedOutput:
        return KeyedOutput(self)


class KeyedOutput(PlainXComArg):
    """A reference to the result of a task, which knows its keys."""

    operator: MultipleOutputsOperator

    def __getitem__(self, item: str) -> Any:
        """Return a reference to the key, which counts as a value of its type: it is one when a task reads it."""
        known = self.operator.output_keys
        if item not in known:
            raise ValueError(
                f"the output of {self.operator.task_id} has no key {item!r}: {type(self.operator).__name__} returns "
                f"{', '.join(known)}"
            )
        return super().__getitem__(item)
