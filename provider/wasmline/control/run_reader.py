"""Reads the orders and the newest reports of followed runs from the job topic."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from wasmline.control import control_topics
from wasmline.control.job_keys import report_key
from wasmline.control.job_topic import JobOrder
from wasmline.documents import decode
from wasmline.errors import WasmlineError
from wasmline.job_specs import JobReport
from wasmline.kafka import CompactedTopic, KafkaConfig

RunKey = tuple[str, str]
"""A job and its run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """The current order of a run's job, and the newest report of the run; None for one that is not there.

    error: the reason why one of them cannot be decoded, such as UnsupportedSpecVersion.
    """

    order: JobOrder | None = None
    report: JobReport | None = None
    error: WasmlineError | None = None


@dataclass(frozen=True, slots=True)
class _Decoded:
    order: bytes | None
    report: bytes | None
    reading: RunReading


class RunReader:
    """Reads any number of runs with one client, and holds only their orders and reports in memory.

    For one thread. Must be closed, also after an error: another reader then starts from the topic's beginning.
    """

    def __init__(self, config: KafkaConfig) -> None:
        control_topics.ensure(config)
        self._keys: frozenset[bytes] = frozenset()
        self._decoded: dict[RunKey, _Decoded] = {}
        self._topic = CompactedTopic(config, control_topics.JOBS, keep=lambda key: key in self._keys)

    def read(self, runs: Collection[RunKey]) -> dict[RunKey, RunReading]:
        """Return the readings of ``runs``, with every write that was acknowledged before this call.

        Raises BrokerUnavailable, HangingTransaction, KafkaError.
        """
        keys = frozenset(key for run in runs for key in _keys(run))
        has_new, self._keys = not keys <= self._keys, keys
        view = self._topic.reread() if has_new else self._topic.read()
        self._decoded = {run: self._decode(run, view) for run in runs}
        return {run: decoded.reading for run, decoded in self._decoded.items()}

    def close(self) -> None:
        """Close the Kafka client."""
        self._topic.close()

    def _decode(self, run: RunKey, view: dict[bytes, bytes]) -> _Decoded:
        order, report = (view.get(key) for key in _keys(run))
        earlier = self._decoded.get(run)
        if earlier is not None and (earlier.order, earlier.report) == (order, report):
            return earlier
        return _Decoded(order, report, _reading(order, report))


def _keys(run: RunKey) -> tuple[bytes, bytes]:
    return run[0].encode(), report_key(*run)


def _reading(order: bytes | None, report: bytes | None) -> RunReading:
    try:
        return RunReading(
            order=decode(JobOrder, order) if order else None, report=decode(JobReport, report) if report else None
        )
    except WasmlineError as error:
        return RunReading(error=error)
