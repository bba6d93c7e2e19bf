"""What of one partition is done, and therefore where its next reader has to begin. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from wasmline.consumer import offset_codec


class Start(NamedTuple):
    """Where a partition was left: ``offset`` is what was committed, beside the map that was committed with it."""

    offset: int
    highest_succeeded: int
    incompletes: tuple[int, ...] = ()


class Commit(NamedTuple):
    """An offset and the map of what is done above it, taken from one moment; ``moment`` names that moment."""

    offset: int
    metadata: str
    moment: int


class PartitionOffsets:
    """Follows the offsets of one partition in one assignment.

    Only offsets that were read are followed, so gaps in the log (transaction markers, compacted records) hold nothing
    up. The commit offset is the lowest incomplete one, or the one after the highest that succeeded. The rules are those
    of the Java library: ``reference/parallel_consumer.md`` §1.10 and §2.
    """

    __slots__ = ("_awaited", "_committed", "_incompletes", "_moment", "blocked", "first", "highest_succeeded", "next")

    def __init__(self, start: Start | None = None) -> None:
        self.next = start.offset if start else None
        """The lowest offset that the next record can have; None where nothing was committed or read yet."""
        self.first = self.next
        """The first offset of this assignment, committed or read."""
        self.highest_succeeded = start.highest_succeeded if start else -1
        self.blocked = False
        """The map is nearly too large: only records below ``highest_succeeded``, which shrink it, may start."""
        self._awaited = deque(start.incompletes if start else ())
        self._incompletes = dict.fromkeys(self._awaited)
        self._moment = self._committed = 0

    @property
    def base(self) -> int | None:
        """The offset to commit: all below it are done. None before the first record of a partition without a commit."""
        if self.first is None:
            return None
        return next(iter(self._incompletes), self.highest_succeeded + 1)

    @property
    def incompletes(self) -> int:
        """How many offsets are read, or known from the map, and not done."""
        return len(self._incompletes)

    @property
    def is_dirty(self) -> bool:
        """Whether something was done since what ``committed`` was told."""
        return self._moment != self._committed

    def admit(self, offset: int) -> bool:
        """Follow a record that was read, and say whether it is still to be done. Offsets ascend from call to call."""
        if self.first is None:
            self.first, self.highest_succeeded = offset, offset - 1
        self.next = offset + 1
        while self._awaited and self._awaited[0] <= offset:
            awaited = self._awaited.popleft()
            if awaited == offset:
                return True
            self.done(awaited)  # the log no longer has it
        if offset <= self.highest_succeeded:
            return False
        self._incompletes[offset] = None
        return True

    def done(self, offset: int) -> None:
        """Note that a record is done."""
        del self._incompletes[offset]
        self.highest_succeeded = max(self.highest_succeeded, offset)
        self._moment += 1

    def commit(self) -> Commit | None:
        """Return what is to be committed now, or None where nothing was done since what ``committed`` was told.

        A map that is too large for a broker is left out; ``blocked`` follows from the size of the map.
        """
        base = self.base
        if base is None or not self.is_dirty:
            return None
        metadata = offset_codec.encode(base, self.highest_succeeded, self._incompletes)
        self.blocked = len(metadata) > offset_codec.PRESSURE
        return Commit(base, metadata if len(metadata) <= offset_codec.MAX_LENGTH else "", self._moment)

    def committed(self, commit: Commit) -> None:
        """Note that the broker has ``commit``."""
        self._committed = max(self._committed, commit.moment)
