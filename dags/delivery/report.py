"""The result of a demo run: one document, stored as JSON and rendered as a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from delivery.correlations import Signals
from delivery.prediction_verification import ServedModel
from delivery.verification import Accounting
from enriching.benchmark_result import Comparison
from wasmline.training import TrainResult

JSON_FILE = "report.json"
PAGE_FILE = "report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """The transform of the run; ``size`` in bytes."""

    name: str
    version: str
    digest: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """One micro-batch: records read, and seconds from its start to its commit."""

    batch: int
    records: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """Topics and micro-batches of the stream. In the first batch Spark's Python workers start."""

    input_topic: str
    output_topic: str
    dead_letter_topic: str
    partitions: int
    batches: list[BatchPoint]

    @property
    def start_seconds(self) -> float:
        """The duration of the first batch."""
        return self.batches[0].seconds if self.batches else 0.0

    @property
    def records_per_second(self) -> float | None:
        """The rate of the batches after the first, from the start of each to its commit; None if there are none."""
        later = self.batches[1:]
        seconds = sum(batch.seconds for batch in later)
        return sum(batch.records for batch in later) / seconds if seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFacts:
    """The champion in the stream; ``explained`` tells the origin of one of its predictions, line by line."""

    module: ModuleFacts
    output_topic: str
    served: ServedModel
    explained: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReport:
    """The data of the summary and the page.

    ``source`` is the origin of the records, ``steps`` the seconds of each step in order, ``created`` is RFC 3339.
    ``look_next`` maps further things to see to their locations. ``comparison`` is of another DAG, enrich_over_http.
    """

    run: str
    created: str
    source: str
    module: ModuleFacts
    stream: StreamFacts
    accounting: Accounting
    training: TrainResult
    serving: ServingFacts
    signals: Signals
    steps: dict[str, float]
    look_next: dict[str, str]
    comparison: Comparison | None = None
    spec_version: Literal[1] = 1
