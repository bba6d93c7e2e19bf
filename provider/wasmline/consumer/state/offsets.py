"""Tracks the completed offsets of one partition and the offset to commit. Pure.

The rules: docs/protocols/offset_maps.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from wasmline.offset_maps import DEFAULT_LIMITS, OffsetMapLimits, codec


class InitialProgress(NamedTuple):
    """Where an assignment of a partition begins: the committed ``offset``, and the contents of its map."""

    offset: int
    highest_succeeded: int
    incompletes: tuple[int, ...] = ()

    def below(self, offset: int) -> InitialProgress:
        """Return the part that is valid for a truncated log, which has other records from ``offset`` on."""
        begin = min(self.offset, offset)
        highest = max(begin, min(self.highest_succeeded + 1, offset)) - 1
        return InitialProgress(begin, highest, tuple(each for each in self.incompletes if each < offset))


class Commit(NamedTuple):
    """An offset and the map of what is done above it, taken at one moment.

    ``revision`` counts the calls of ``PartitionOffsets.done`` until then; later calls are not covered.
    """

    offset: int
    metadata: str
    revision: int


class PartitionOffsets:
    """Tracks the offsets of one partition in one assignment.

    Only offsets that were read are tracked, so gaps in the log (transaction markers, compacted records) block nothing.
    The offset to commit is the lowest incomplete one, or the one after the highest that succeeded. The rules are those
    of the Java library.
    """

    __slots__ = (
        "_acknowledged",
        "_awaited",
        "_committed",
        "_fits",
        "_fitting",
        "_incompletes",
        "_limits",
        "_measured",
        "_next_measurement",
        "_share",
        "blocked",
        "first",
        "highest_succeeded",
        "next",
        "revision",
    )

    def __init__(self, start: InitialProgress | None = None, limits: OffsetMapLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self.next = start.offset if start else None
        """Lower bound of the next record's offset; None if nothing was committed or read yet."""
        self.first = self.next
        """The first offset of this assignment, committed or read."""
        self.highest_succeeded = start.highest_succeeded if start else -1
        self.blocked = False
        """The map is nearly too large: only records up to ``highest_succeeded``, which shrink it, may start."""
        self._awaited = deque(start.incompletes if start else ())
        self._incompletes: dict[int, Sequence[int]] = {each: (each,) for each in self._awaited}
        """By its first offset, what is done at once: a record, or a run of them; in ascending order."""
        self.revision = 0
        """Number of completions in this assignment."""
        self._next_measurement = limits.measured_calls
        """The revision at which the map is measured if it may be large."""
        self._measured = self._committed = 0
        self._acknowledged = self.next
        self._fitting: Commit | None = None
        """The newest commit whose map fits."""
        self._fits = True
        """Whether the map fitted at the last measurement."""
        self._share = 1.0
        """The part of ``max_metadata_length`` that the broker accepts."""

    @property
    def base(self) -> int | None:
        """The offset to commit: all below it are done. None before the first record of a partition without a commit."""
        if self.first is None:
            return None
        return next(iter(self._incompletes), self.highest_succeeded + 1)

    @property
    def incompletes(self) -> int:
        """The number of offsets that are read, or known from the map, and not done."""
        return sum(map(len, self._incompletes.values()))

    @property
    def is_measured(self) -> bool:
        """Whether ``blocked`` takes all completed offsets into account."""
        return self.revision == self._measured

    @property
    def is_held_back(self) -> bool:
        """Whether the map was too large at the last measurement, so that only a part is committed."""
        return not self._fits

    def admit(self, offset: int) -> bool:
        """Track a record that was read; return whether it is still to be done. Offsets ascend from call to call."""
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
        self._incompletes[offset] = (offset,)
        return True

    def admits_run(self, first: int) -> bool:
        """Return whether all offsets from ``first`` on are still to be done, so that ``admit_run`` may take them."""
        return not self._awaited and first > self.highest_succeeded and (self.next is None or first >= self.next)

    def admit_run(self, offsets: Sequence[int]) -> None:
        """Track records that were read and that are done together: ``done`` takes the first offset for them all."""
        first, last = int(offsets[0]), int(offsets[-1])
        if self.first is None:
            self.first, self.highest_succeeded = first, first - 1
        self.next = last + 1
        self._incompletes[first] = offsets

    def split(self, first: int, records: int) -> None:
        """Track so many records of a run, and those behind them, as two runs."""
        divided: dict[int, Sequence[int]] = {}
        for known, offsets in self._incompletes.items():
            if known == first:
                divided |= {first: offsets[:records], int(offsets[records]): offsets[records:]}
            else:
                divided[known] = offsets
        self._incompletes = divided

    def divide(self, firsts: Collection[int]) -> None:
        """Track the records of runs with these first offsets one by one: they are no longer done together."""
        divided: dict[int, Sequence[int]] = {}
        for known, offsets in self._incompletes.items():
            divided.update({int(each): (int(each),) for each in offsets} if known in firsts else {known: offsets})
        self._incompletes = divided

    def begin_commit(self) -> None:
        """Have the first offset committed, although nothing is done: the next assignment begins there, too."""
        self.revision += 1

    def skip_to(self, start: int, read: int) -> int:
        """Continue at ``start``, the beginning of the log; return the number of lower offsets neither done nor read.

        ``read`` is the offset that was to be read next.
        """
        lost = 0
        while self._awaited and self._awaited[0] < start:
            self.done(self._awaited.popleft())
            lost += 1
        lost += max(0, start - max(read, self.highest_succeeded + 1))
        self.highest_succeeded = max(self.highest_succeeded, start - 1)
        self.next = start
        self.revision += 1
        return lost

    def done(self, *offsets: int) -> None:
        """Mark records, or runs of them, as done, together: no commit has some of them without the others."""
        for offset in offsets:
            last = int(self._incompletes.pop(offset)[-1])
            if last > self.highest_succeeded:
                self.highest_succeeded = last
        self.revision += 1
        if self.revision >= self._next_measurement:
            self._next_measurement = self.revision + self._limits.measured_calls
            if self._range > self._limits.long_range_offsets * self._share:
                self._measure()

    def undo(self, *offsets: int) -> None:
        """Mark records as incomplete again. No commit that had one of them as done has reached the broker."""
        undone = ((offset, (offset,)) for offset in offsets)
        self._incompletes = dict(sorted([*self._incompletes.items(), *undone]))
        while self.highest_succeeded in self._incompletes:
            self.highest_succeeded -= 1
        self.revision += 1
        self._fitting = None

    def limit(self, characters: int) -> None:
        """Set the maximum of characters of a map that the broker accepts."""
        self._share = characters / self._limits.max_metadata_length
        if self._fitting is not None and len(self._fitting.metadata) > characters:
            self._fitting = None
        self._measure()

    def commit(self) -> Commit | None:
        """Return the commit to make now, or None if it is not newer than the last one passed to ``committed``.

        Where the map of all that is done exceeds the broker's limit, this is the newest revision whose map did not.
        ``blocked`` follows from the size of the map.
        """
        if not self.is_measured:
            self._measure()
        fitting = self._fitting
        return fitting if fitting is not None and fitting.revision > self._committed else None

    def committed(self, commit: Commit) -> None:
        """Record that the broker has ``commit``."""
        if commit.revision > self._committed:
            self._committed, self._acknowledged = commit.revision, commit.offset

    @property
    def has_committed(self) -> bool:
        """Whether the broker has a commit of this assignment."""
        return self._committed > 0

    @property
    def settled(self) -> int | None:
        """The committed offset, once the broker has confirmed all that is done; None before."""
        return self._acknowledged if self.revision == self._committed else None

    @property
    def _range(self) -> int:
        """The number of offsets that the map covers."""
        return self.highest_succeeded - next(iter(self._incompletes), self.highest_succeeded)

    def _encoded(self) -> Iterable[int]:
        """Return the incomplete offsets for a map: of a run above ``highest_succeeded``, which it omits, the first."""
        highest = self.highest_succeeded
        return chain.from_iterable(
            offsets if first <= highest else (first,) for first, offsets in self._incompletes.items()
        )

    def _measure(self) -> None:
        """Encode the map to measure its size."""
        base = next(iter(self._incompletes), self.highest_succeeded + 1)
        metadata = codec.encode(base, self.highest_succeeded, self._encoded())
        back_pressure_length = self._limits.back_pressure_length * self._share
        if base > self.highest_succeeded and len(metadata) > back_pressure_length:
            metadata = ""  # it says no more than its absence does, and a broker may store no metadata at all
        self.blocked = len(metadata) > back_pressure_length
        self._fits = len(metadata) <= self._limits.max_metadata_length * self._share
        self._measured = self.revision
        if self._fits:
            self._fitting = Commit(base, metadata, self.revision)
