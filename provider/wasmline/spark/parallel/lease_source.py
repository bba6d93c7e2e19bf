"""Leases as a streaming source of Spark: a batch is a round of leases, and its rows are their statuses.

No data crosses Spark. It places the tasks, retries failed ones, shows them, and keeps the last round in the checkpoint.
Kafka settings are in no option and no plan: the planner takes them from the environment, and each task gets them with
its lease.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from wasmline.documents import decode, plain
from wasmline.garbage_collection import collect_rarely
from wasmline.kafka import KafkaConfig
from wasmline.leases.lease import Lease
from wasmline.leases.lease_planner import LeasePlanner, LeaseRound, PlannerConfig
from wasmline.leases.lease_worker import LeaseWorker
from wasmline.leases.timings import DEFAULT_TIMINGS
from wasmline.spark.parallel.process_watchdog import under_watchdog
from wasmline.spark.task_release import ReleaseBound

PLANNER_CONFIG = "planned"
TRANSFORM = "transform"


@dataclass(frozen=True, slots=True)
class LeasePartition(ReleaseBound, InputPartition):
    """A task's lease, and the settings to reach the cluster."""

    lease: Lease
    config: KafkaConfig


class LeaseReader(DataSourceStreamReader):
    """Plans rounds of leases in the driver's planner process, and runs one lease in each task."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._opened: LeasePlanner | None = None
        self._last: LeaseRound | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_opened": None, "_last": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return _to_offset(LeaseRound())

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """Return the newest planned round; plan one if there is something to do.

        Before 4.2 Spark names no ``start``: it is what this returned last, or the round of an earlier driver.
        """
        if start is not None:
            last = _to_round(start)
        else:
            last = self._last or LeaseRound(epoch=self._planned.epoch)
        self._last = following = self._planner.next(last)
        return start if start is not None and following == last else _to_offset(following)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        config = KafkaConfig.from_environment()
        if self._last is None:  # Spark repeats the checkpoint's last batch before it asks for another
            self._last = _to_round(end)
        return [LeasePartition(lease, config) for lease in self._planner.leases(_to_round(end))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, LeasePartition)
        _tune_garbage_collection()
        with under_watchdog(DEFAULT_TIMINGS.renewal_timeout_s) as beat:
            yield from LeaseWorker(partition.config, partition.lease, beat).run()

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()

    @property
    def _planned(self) -> PlannerConfig:
        return decode(PlannerConfig, self._options[PLANNER_CONFIG])

    @property
    def _planner(self) -> LeasePlanner:
        if self._opened is None:
            self._opened = LeasePlanner(KafkaConfig.from_environment(), self._planned, self._options[TRANSFORM])
        return self._opened


class LeaseSource(DataSource):
    """``spark.readStream.format("wasmline-leases")``. Options: a PlannerConfig as JSON, a transform's name."""

    @classmethod
    def name(cls) -> str:
        return "wasmline-leases"

    def schema(self) -> str:
        return "epoch long, partitions string, records long, in_flight long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return LeaseReader(dict(self.options))


_leases = itertools.count(1)
"""Counts this process's leases: after the first one, all modules that a lease needs are imported."""


def _tune_garbage_collection() -> None:
    """Exclude the objects that the first lease needed from the garbage collection that Spark runs between tasks.

    It would scan every imported module, for 30 ms of CPU or more while other partitions wait for their next lease.
    """
    if next(_leases) == 2:
        collect_rarely()


def _to_offset(lease_round: LeaseRound) -> dict[str, Any]:
    found: dict[str, Any] = plain(lease_round)
    return found


def _to_round(offset: dict[str, Any]) -> LeaseRound:
    return decode(LeaseRound, json.dumps(offset))
