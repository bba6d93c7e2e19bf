"""The query of a stream job, which depends on its mode, with its progress and its reports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from wasmline.control import DriverClaim
from wasmline.job_specs import JobReport, JobState


class PartitionsAdded(Exception):
    """Partitions were added to the topic after the run was planned."""


class JobQuery(ABC):
    """The query of a planned run."""

    @abstractmethod
    def start(self) -> StreamingQuery:
        """Start the query."""

    @abstractmethod
    def poll(self, query: StreamingQuery) -> bool:
        """Record the query's progress since the last call; return whether there is anything to report."""

    @abstractmethod
    def report(self, state: JobState, message: str = "", error: str | None = None) -> JobReport:
        """Write and return a report."""

    @abstractmethod
    def before_stop(self) -> None:
        """Let no other batch follow the running one."""

    @abstractmethod
    def raise_cause(self, query: StreamingQuery, exception: StreamingQueryException) -> None:
        """Raise the error that ended the query, unless it was the stop; PartitionsAdded to plan the run again."""

    @abstractmethod
    def certain_offsets(self, newest: DriverClaim) -> Mapping[int, int]:
        """Return the progress of this driver, whose newest claim is ``newest``, as far as it is certain."""
