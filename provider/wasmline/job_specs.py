"""Documents between an orchestrator and a job, as versioned JSON: a JobSpec goes in, JobReports come out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from wasmline.clock import now_ms
from wasmline.errors import InvalidJob, InvalidTrainSpec
from wasmline.offset_ranges import MAX_OFFSET, OffsetRanges, require_ranges

FieldType = Literal["double", "bigint", "string"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""A job's name, and a run's: they are part of topic keys, consumer groups and paths."""

FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

INTERVAL = re.compile(r"\d+ *(milliseconds?|seconds?|minutes?|hours?)")

MAX_UNIT_LETTERS = 32

MAX_RUN_LETTERS = 1_024

WINDOW = re.compile(r"all|last [1-9][0-9]{0,5}")

TRANSFORM_VERSION = re.compile(r"[^@\s]+@[^@\s]+")

ROW_COLUMNS = frozenset({"_partition", "_offset", "_timestamp", "_transform", "_held_out", "_stand_in"})
"""Columns that rows of a training have beside its fields."""

HEARTBEAT_INTERVAL_S = 5.0
"""Seconds between two reports of a running job: heartbeats of its driver. Time-outs for them are multiples of it."""


DRIVER_START_TIMEOUT_S = 24 * HEARTBEAT_INTERVAL_S
"""Seconds after which a driver that is being started counts as dead: Spark's start, or the wait for a launcher."""

DRIVER_HEARTBEAT_TIMEOUT_S = 6 * HEARTBEAT_INTERVAL_S
"""Seconds without a change of its report after which a running driver counts as dead, and an order that nobody has
begun to carry out. If it lives, the next one fences it."""


class JobState(StrEnum):
    """The state of a run of a job. The last three are final."""

    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        return self in (JobState.SUCCEEDED, JobState.STOPPED, JobState.FAILED)


def require_job_name(job: str) -> None:
    """Raise InvalidJob for a text that is no name of a job."""
    if not NAME.fullmatch(job):
        raise InvalidJob(f"{job!r} is not a job name: use up to 128 letters, digits, '.', '_' and '-'")


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """A Python handler of records: ``function`` is ``module:name``, sync or async, importable in Spark's tasks.

    It reads ``topic``; records that fail ``max_attempts`` times (None: unlimited) go to ``dead_letter_topic``.
    With ``batch_size`` it receives lists of records.
    """

    function: str
    topic: str
    dead_letter_topic: str | None = None
    batch_size: int | None = None
    max_attempts: int | None = None
    retry_delay_ms: int = 1_000

    def __post_init__(self) -> None:
        if not FUNCTION.fullmatch(self.function):
            raise InvalidJob(f"{self.function!r} is not a function: write module:function")
        if not self.topic:
            raise InvalidJob(f"{self.function} has no topic: set topic")
        _at_least(1, batch_size=self.batch_size, max_attempts=self.max_attempts)
        _at_least(0, retry_delay_ms=self.retry_delay_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """Run one deployment, or in parallel mode a function, over its input topic.

    mode: ``microbatch`` is one Spark task for each partition and batch; ``parallel`` leases the partitions to tasks,
        which process many keys of each at once.
    trigger_interval: the pause between two batches; leases follow each other at once. None: end when caught up.
    delivery: ``exactly_once`` writes outputs and progress in transactions.
    starting_offsets: where the first run of a job begins; later runs continue where the last one ended.
    fail_on_data_loss: end with OffsetOutOfRange if retention removed records before they were read. False: continue
        without them, and count them as ``lost_offsets``.
    fail_on_moved_progress: end with ProgressLost if the group's progress differs from what the last run left. False:
        continue at the group's progress, for example after a manual reset.
    shards: microbatch only: the number of tasks over which each batch is spread, by key.
    ordering, max_concurrency, commit_interval_ms: parallel only, for each task: see ConsumerOptions.
    lease_seconds: parallel only: the duration of a lease, twelve hours at most. A new generation and a stop end it.
    tasks: parallel only: how many tasks share the partitions; None: one for each slot, at most one for each partition.
    """

    transform: str = ""
    function: FunctionSpec | None = None
    mode: Literal["microbatch", "parallel"] = "microbatch"
    delivery: Literal["at_least_once", "exactly_once"] = "at_least_once"
    trigger_interval: str | None = None
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    fail_on_data_loss: bool = True
    fail_on_moved_progress: bool = True
    max_offsets_per_trigger: int = 100_000
    shards: int | None = None
    ordering: Literal["key", "partition", "unordered"] = "key"
    max_concurrency: int | None = None
    commit_interval_ms: int | None = None
    lease_seconds: float = 600.0
    tasks: int | None = None

    def __post_init__(self) -> None:
        if bool(self.transform) == (self.function is not None):
            raise InvalidJob("a stream needs exactly one of transform and function")
        if self.function is not None and self.mode != "parallel":
            raise InvalidJob(f"mode {self.mode} runs transforms: {self.function.function} needs mode parallel")
        if self.shards is not None and self.mode != "microbatch":
            raise InvalidJob("shards apply to mode microbatch: in mode parallel, set max_concurrency")
        _at_least(1, max_offsets_per_trigger=self.max_offsets_per_trigger, shards=self.shards, tasks=self.tasks)
        _at_least(1, max_concurrency=self.max_concurrency, commit_interval_ms=self.commit_interval_ms)
        _at_least(1, lease_seconds=self.lease_seconds)
        if self.trigger_interval is not None and not INTERVAL.fullmatch(self.trigger_interval):
            raise InvalidJob(f"trigger_interval {self.trigger_interval!r} is not an interval such as '5 seconds'")


def _at_least(least: int, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not value >= least:  # nor is NaN
            raise InvalidJob(f"{name} must be at least {least}, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRequest:
    """What of a topic is new to a model. The first run of a name decides, and its repetitions get the same slice.

    run: the identity of the orchestrator's run, such as ``dag_id/run_id``; clearing it does not change it.
    since: where the slice begins: at the end of the slice before it (``previous``), at the topic's ``beginning``, or
        at a Unix time in milliseconds.
    until: where it ends, half open: at the topic's end ``now``, at a Unix time in milliseconds, or at the offset of
        each partition; a partition that is not named gives nothing.
    """

    run: str
    since: Literal["previous", "beginning"] | int = "previous"
    until: Literal["now"] | int | dict[str, int] = "now"

    def __post_init__(self) -> None:
        _require(0 < len(self.run) <= MAX_RUN_LETTERS, "slice", f"needs a run of 1 to {MAX_RUN_LETTERS} letters")
        for name, moment in (("since", self.since), ("until", self.until)):
            if isinstance(moment, int):
                _require(0 < moment <= MAX_OFFSET, "slice", f"has {name} {moment}, which is no Unix time")
        if isinstance(self.since, int) and isinstance(self.until, int):
            _require(self.since < self.until, "slice", f"ends at {self.until}, not after its start at {self.since}")
        if isinstance(self.until, dict):
            _require_ranges("slice", {partition: (0, end) for partition, end in self.until.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSpec:
    """Train ``model`` on the JSON records of ``topic`` and keep it as a version in the registry at ``models``.

    ``fields`` are the JSON object's members to read and their types; ``features`` the inputs of the model, ``target``
    its prediction, ``identity`` the key of a record: of records with the same identity the first counts, and only its
    identity and ``seed`` decide whether a record is held out. A text feature needs its values in ``categories``, in the
    order of the model's columns. ``units`` are the units of fields, such as ``km``, for documentation. ``where`` is a
    SQL condition over the fields that selects usable records. The records are those since ``since_ms`` (Unix time) up
    to now, exactly ``offsets``: ``{partition: (from, to)}``, half open, or those of ``slice`` and the slices before it.

    With a ``slice``, one candidate is trained on each of ``windows``: ``all`` recorded slices, or the ``last N``. With
    fewer than ``min_new_rows`` usable rows in the new slice, nothing is recorded or trained. ``keep_rows``: the records
    of the slice are kept beside the model. ``transform_versions`` whose records may be trained on, by their provenance:
    ``any``, the ``newest`` of each transform, or each ``name@version``.

    A challenger is promoted if the interval, at ``confidence``, of its RMSE divided by the champion's ends below
    ``1 - margin``, and that of no segment, a value of a field of ``segments``, lies above 1; see the gate.
    """

    model: str
    topic: str
    models: str
    fields: dict[str, FieldType]
    features: tuple[str, ...]
    target: str
    identity: str
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    where: str = "true"
    since_ms: int = 0
    offsets: OffsetRanges | None = None
    seed: int = 7
    holdout_share: float = 0.2
    min_rows: int = 500
    trees: int = 60
    depth: int = 5
    learning_rate: float = 0.1
    margin: float = 0.0
    segments: tuple[str, ...] = ()
    confidence: float = 0.99
    slice: SliceRequest | None = None
    windows: tuple[str, ...] = ("all",)
    min_new_rows: int = 0
    keep_rows: bool = False
    transform_versions: Literal["any", "newest"] | tuple[str, ...] = "any"

    def __post_init__(self) -> None:
        named = (self.target, self.identity, *self.features, *self.categories, *self.units, *self.segments)
        unknown = set(named) - self.fields.keys()
        _require(not unknown, "fields", f"lacks the type of {', '.join(sorted(unknown))}")
        folded = [name.casefold() for name in self.fields]
        taken = sorted(ROW_COLUMNS.intersection(folded))
        _require(not taken, "fields", f"has {', '.join(taken)}: rows have a column of that name for their record")
        _require(len(set(folded)) == len(folded), "fields", "has names that differ in case only: to Spark they are one")
        _require(bool(self.features), "features", "is empty")
        _require(len(set(self.features)) == len(self.features), "features", "names a field twice")
        _require(self.target not in self.features, "features", f"contains the target {self.target}")
        _require(self.fields[self.target] != "string", "target", f"{self.target} must be a number")
        for name in self.features:
            _require(
                (self.fields[name] == "string") == (name in self.categories),
                "categories",
                f"must list the values of {name} if and only if it is a string",
            )
        for name, unit in self.units.items():
            _require(0 < len(unit) <= MAX_UNIT_LETTERS, "units", f"has {unit[:40]!r} for {name}: up to 32 letters")
        _require(0 < self.holdout_share < 1, "holdout_share", f"must be between 0 and 1, got {self.holdout_share}")
        _require(self.margin < 1, "margin", f"must be below 1, got {self.margin}")
        _require(0.5 <= self.confidence < 1, "confidence", f"must be from 0.5 to below 1, got {self.confidence}")
        _require(len(set(self.segments)) == len(self.segments), "segments", "names a field twice")
        _require(min(self.trees, self.depth, self.min_rows) > 0, "trees, depth, min_rows", "must be positive")
        _require(self.learning_rate > 0, "learning_rate", "must be positive")
        self._check_records()

    def _check_records(self) -> None:
        """Check which records are asked for."""
        if self.offsets is not None:
            _require_ranges("offsets", self.offsets)
        elsewhere = self.offsets is not None or self.since_ms > 0
        _require(self.slice is None or not elsewhere, "slice", "excludes offsets and since_ms: set since and until")
        _require(bool(self.windows), "windows", "is empty: name 'all' or 'last N'")
        for window in self.windows:
            fault = f"has {window[:40]!r}: write 'all' or 'last N', of N slices, not days"
            _require(bool(WINDOW.fullmatch(window)), "windows", fault)
        _require(len(set(self.windows)) == len(self.windows), "windows", "names a window twice")
        _require(self.min_new_rows >= 0, "min_new_rows", f"must be at least 0, got {self.min_new_rows}")
        for name, asked in {
            "windows": self.windows != ("all",),
            "min_new_rows": self.min_new_rows > 0,
            "keep_rows": self.keep_rows,
        }.items():
            fault = "needs a slice: set since='previous' in TrainModelOperator, or TrainSpec.slice"
            _require(self.slice is not None or not asked, name, fault)
        if not isinstance(self.transform_versions, str):
            _require(bool(self.transform_versions), "transform_versions", "is empty: no record could be trained on")
            for version in self.transform_versions:
                fault = f"has {version[:40]!r}: write name@version"
                _require(bool(TRANSFORM_VERSION.fullmatch(version)), "transform_versions", fault)


def _require(met: bool, name: str, fault: str) -> None:
    if not met:
        raise InvalidTrainSpec(f"the training's {name} {fault}", field=name)


def _require_ranges(name: str, offsets: OffsetRanges) -> None:
    try:
        require_ranges(offsets)
    except ValueError as error:
        raise InvalidTrainSpec(f"the training's {name} is invalid: {error}", field=name) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One run of one job.

    ``job`` is the identity of checkpoints and of the consumer group, ``run`` is unique per submission, and ``storage``
    the folder or object-store URL of checkpoints. At ``metrics_port`` of its machine the driver of a stream serves
    Prometheus metrics; 0 is any free port, named in its output, and None is no metrics.
    """

    job: str
    run: str
    storage: str
    stream: StreamSpec | None = None
    train: TrainSpec | None = None
    metrics_port: int | None = None
    spec_version: Literal[1] = 1

    def __post_init__(self) -> None:
        require_job_name(self.job)
        if self.run and not NAME.fullmatch(self.run):
            raise InvalidJob(f"{self.run[:100]!r} is not a run: use up to 128 letters, digits, '.', '_' and '-'")
        if self.metrics_port is not None and not 0 <= self.metrics_port <= 65535:
            raise InvalidJob(f"metrics_port must be from 0 to 65535, got {self.metrics_port}")

    @property
    def group(self) -> str:
        """The consumer group with the job's progress. It belongs to the job alone."""
        return f"wasmline.{self.job}"

    @property
    def is_continuous(self) -> bool:
        """Whether the job is a stream that runs until it is stopped."""
        return self.stream is not None and self.stream.trigger_interval is not None

    @property
    def processing(self) -> str | None:
        """What the job processes, as text; two jobs with the same would double its outputs. None for a training."""
        if self.stream is None:
            return None
        function = self.stream.function
        return f"{function.function} on {function.topic}" if function else f"transform {self.stream.transform}"

    @property
    def transactional_id(self) -> str:
        """Prefix of the transactional ids of the job's tasks, one for each virtual shard of the input."""
        return f"wasmline.stream.{self.job}"


def stream_of(job: JobSpec) -> StreamSpec:
    """Return the stream of a job. Raises InvalidJob if it is not a stream."""
    if job.stream is None:
        raise InvalidJob(f"job {job.job} is not a stream")
    return job.stream


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """One micro-batch: ``offsets`` are half-open ranges per partition, ``duration_ms`` Spark's own breakdown.

    For a failed exactly-once batch, it has what its tasks committed; the rest is another batch of a later run.
    """

    batch_id: int
    generation: int
    records_in: int
    records_out: int
    dead_letters: dict[str, int]
    offsets: dict[str, tuple[int, int]]
    started_ms: int
    duration_ms: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTotals:
    """Totals of a streaming run so far. ``batches`` are the last ones, oldest first; the counts cover all."""

    transform: str
    digest: str
    generation: int
    partitions: int
    records_in: int
    records_out: int
    dead_letters: dict[str, int]
    batches: list[BatchReport]
    lost_offsets: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The state of a run of a job. ``result``: a stream's totals, or the result of a training.

    ``spark_ui`` is the URL of the UI of a running driver, "" without one.

    The first one, of an order for which its client starts the driver, has no message: the supervisor of spark-submit
    writes the next. A driver is being started where there is one.
    """

    job: str
    run: str
    state: JobState
    updated_ms: int
    message: str = ""
    error: str | None = None
    result: dict[str, Any] = field(default_factory=dict)
    spark_ui: str = ""
    spec_version: Literal[1] = 1

    @classmethod
    def now(
        cls,
        job: str,
        run: str,
        state: JobState,
        message: str = "",
        *,
        error: str | None = None,
        result: dict[str, Any] | None = None,
    ) -> JobReport:
        """Return a report with the current time."""
        return cls(
            job=job, run=run, state=state, updated_ms=now_ms(), message=message, error=error, result=result or {}
        )

    @property
    def is_driver_starting(self) -> bool:
        """Whether a process starts the driver, or a launcher is asked to; not so for the order alone."""
        return self.state is JobState.STARTING and self.message != ""

    @property
    def timeout_s(self) -> float:
        """Seconds without another report after which the run counts as dead."""
        return DRIVER_START_TIMEOUT_S if self.is_driver_starting else DRIVER_HEARTBEAT_TIMEOUT_S
