"""Calls of a handler, as an executor runs them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from wasmline.consumer.options import ConsumerOptions
from wasmline.consumer.records import BatchResult, ConsumedRecord

if TYPE_CHECKING:
    from wasmline.consumer.state.partition_work import PartitionWork
    from wasmline.consumer.state.shards import Shard

MAX_FOLLOWED_CALL_S = 0.01
"""Seconds of a call beyond which its worker does not continue with those that follow: they would delay the records of
other keys, and cannot be recalled."""


class Call:
    """One call of the handler with records of one partition."""

    __slots__ = ("began", "result", "seconds", "work")

    def __init__(self, work: PartitionWork) -> None:
        self.work = work
        self.result: Any = None
        """The result: None if it has not returned or was not begun, an exception if it failed as a whole."""
        self.began: float | None = None
        """Time of the handler's call, by ``time.monotonic``."""
        self.seconds = 0.0
        """Duration of that call, once it has a result."""

    def run(self, handle: Any) -> Any:
        """Call a thread's handler with the records, and return its result."""
        raise NotImplementedError

    def set_result(self, result: Any, seconds: float) -> None:
        """Set what the handler returned, or its exception, and how long that took."""
        self.seconds = seconds
        self.result = result  # last: another thread reads the duration of what has a result

    @property
    def is_wanted(self) -> bool:
        """Whether a worker should still begin it: not where its partition is about to be released."""
        return not self.work.held

    @property
    def is_running(self) -> bool:
        """Whether its handler has been called, and has not returned."""
        return self.began is not None and self.result is None

    @property
    def returned(self) -> float | None:
        """Time of the handler's return, by ``time.monotonic``; None before."""
        return None if self.began is None or self.result is None else self.began + self.seconds

    @property
    def first_offset(self) -> int:
        raise NotImplementedError

    def follow(self) -> Call | None:
        """Return the call that the same worker makes next. To be called once, by the worker, after this call."""
        return None

    def lasts(self, now: float) -> float:
        """Return the seconds since the call of its handler."""
        return 0.0 if self.began is None else max(0.0, now - self.began)


class Batch(Call):
    """The records of one call of the handler: of one partition, in runs of ``shards`` that are locked meanwhile."""

    __slots__ = ("followed_by", "followed_outputs", "next", "records", "shards")

    result: BatchResult | BaseException | None

    def __init__(self, work: PartitionWork, shards: list[Shard], records: list[ConsumedRecord]) -> None:
        super().__init__(work)
        self.shards = shards
        self.records = records
        self.next: Batch | None = None
        """The next batch of the same shard. A worker runs it directly after this one if every record succeeded, the
        call was short, and its outputs are at most ``followed_outputs``."""
        self.followed_outputs = (0, 0)
        """A number, and bytes."""
        self.followed_by: Batch | None = None
        """The next batch, once its worker continues with it."""

    def run(self, handle: Callable[[Sequence[ConsumedRecord]], BatchResult]) -> BatchResult:
        return handle(self.records)

    @property
    def first_offset(self) -> int:
        return self.records[0].offset

    @property
    def runs(self) -> Iterator[tuple[Shard, list[ConsumedRecord]]]:
        """The records of each shard, while it is locked."""
        first = 0
        for shard in self.shards:
            last = first + shard.in_flight
            yield shard, self.records[first:last]
            first = last

    @property
    def is_next(self) -> bool:
        """Whether everything that it follows was released."""
        return self.shards[0].batch is self

    def follow(self) -> Batch | None:
        result = self.result
        if self.next is None or not isinstance(result, BatchResult) or result.failures:
            return None
        most, most_bytes = self.followed_outputs
        if (
            self.seconds <= MAX_FOLLOWED_CALL_S
            and len(result.outputs) <= most
            and sum(output.size for output in result.outputs) <= most_bytes
        ):
            self.followed_by = self.next
        return self.followed_by

    @property
    def following_batches(self) -> Iterator[Batch]:
        """All batches that wait for this one."""
        following = self.next
        while following is not None:
            yield following
            following = following.next


def followed_outputs(options: ConsumerOptions, following: int) -> tuple[int, int]:
    """Return how many outputs a call may have, and how many bytes, for its worker to continue with those that follow.

    The outputs of so many following calls, in each worker, fill the buffers once.
    """
    calls = options.max_concurrency * following
    return options.buffer_records // calls, options.buffer_bytes // calls
