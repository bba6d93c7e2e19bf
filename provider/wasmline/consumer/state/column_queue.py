"""The records of one partition as columns, in the order in which they were read. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from wasmline.consumer.state.calls import Call

if TYPE_CHECKING:
    from wasmline.consumer.columns import ColumnResult, RecordColumns
    from wasmline.consumer.state.partition_work import PartitionWork


class ColumnCall(Call):
    """One call of the handler with all records of a batch, or with some of its rows."""

    __slots__ = ("batch", "columns", "rows")

    def __init__(self, batch: ColumnBatch, rows: Any, columns: RecordColumns) -> None:
        super().__init__(batch.work)
        self.batch = batch
        """Its batch, until that is released."""
        self.rows = rows
        """The rows of the batch, an array of Arrow."""
        self.columns = columns

    def run(self, handle: Any) -> Any:
        return handle.handle_columns(self.columns)

    @property
    def is_wanted(self) -> bool:
        """Also where another call of its batch was begun: nothing of the batch counts without this one."""
        return not self.work.closed and (super().is_wanted or any(each.began is not None for each in self.batch.calls))

    @property
    def outputs(self) -> int:
        """The number of its outputs, once it has returned."""
        return len(self.result.outputs) if hasattr(self.result, "outputs") else 0

    @property
    def output_bytes(self) -> int:
        """The bytes of its outputs, once it has returned."""
        return self.result.outputs.size if hasattr(self.result, "outputs") else 0

    @property
    def first_offset(self) -> int:
        return self.columns.first


class ColumnBatch:
    """Records of one partition that are in flight together, in one call or in several at the same time."""

    __slots__ = ("calls", "columns", "outstanding", "runs", "size", "work")

    def __init__(
        self, work: PartitionWork, parts: Sequence[RecordColumns], columns: RecordColumns, shares: Sequence[Any]
    ) -> None:
        """``columns``: the parts together, of which each call has a share: some of the rows."""
        self.work = work
        self.columns = columns
        self.runs = [part.first for part in parts]
        """The first offset of each run of PartitionOffsets."""
        self.size = sum(part.size for part in parts)
        """Bytes of the records."""
        self.calls = [
            ColumnCall(self, rows, columns if len(rows) == len(columns) else columns.take(rows)) for rows in shares
        ]
        self.outstanding = set(self.calls)
        """The calls that have not returned."""

    @property
    def errors(self) -> Iterator[BaseException]:
        """The errors of the calls that failed as a whole, and of the records that failed in others."""
        for call in self.calls:
            if isinstance(call.result, BaseException):
                yield call.result
            elif call.result is not None:
                yield from call.result.failures.values()

    @property
    def result(self) -> ColumnResult:
        """The results of all calls as one; each has one."""
        first: ColumnResult = self.calls[0].result
        return first.joined([(call.rows, call.result) for call in self.calls])


class ColumnQueue:
    """The columns of one partition, in one assignment; one batch of them is in flight.

    A batch in flight when its partition is revoked stays so until it returns: ``successor`` passes it to the
    partition's next assignment, so that no key is in two calls.
    """

    __slots__ = ("_waiting", "batch", "size")

    def __init__(self, batch: ColumnBatch | None = None) -> None:
        self.batch = batch
        """The batch in flight."""
        self._waiting: deque[RecordColumns] = deque()
        self.size = 0
        """Records that are queued."""

    def add(self, columns: RecordColumns) -> None:
        """Queue records behind those that were read before."""
        self._waiting.append(columns)
        self.size += len(columns)

    def take(self, most: int, most_bytes: int) -> tuple[list[RecordColumns], bool]:
        """Return up to so many records, and about so many bytes, at least one record.

        The second value: whether the last of the columns had more, and were split.
        """
        taken: list[RecordColumns] = []
        while self._waiting and most > 0 and most_bytes > 0:
            first = self._waiting.popleft()
            fitting = min(most, max(1, len(first) * most_bytes // max(first.size, 1)))
            if is_split := len(first) > fitting:
                self._waiting.appendleft(first.slice(fitting, len(first) - fitting))
                first = first.slice(0, fitting)
            taken.append(first)
            self.size -= len(first)
            most, most_bytes = most - len(first), 0 if is_split else most_bytes - first.size
        return taken, is_split

    def put_back(self, taken: Sequence[RecordColumns]) -> None:
        """Queue columns that were taken last again."""
        self._waiting.extendleft(reversed(taken))
        self.size += sum(map(len, taken))

    def take_all(self) -> list[RecordColumns]:
        """Return all records that are queued."""
        taken, self._waiting, self.size = list(self._waiting), deque(), 0
        return taken

    @property
    def first(self) -> RecordColumns | None:
        """The first records that are in flight or queued."""
        if self.batch is not None:
            return self.batch.columns
        return self._waiting[0] if self._waiting else None

    def successor(self) -> ColumnQueue:
        """Return the queue of the partition's next assignment, with the batch in flight; this one is empty then."""
        successor = ColumnQueue(self.batch)
        self.batch = None
        self.take_all()
        return successor
