"""Redrives dead letters: each once, in the order of its key, in transactions that also record which are done."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Literal, Protocol

from wasmline.clock import now_ms
from wasmline.control import NO_CAUSE, ChangeCause, DeadLetterSelection, Redrive, RedriveState, RedriveWriter
from wasmline.errors import (
    BrokerUnavailable,
    Conflict,
    InvalidRedrive,
    OffsetOutOfRange,
    RecordRejected,
)
from wasmline.kafka import KafkaConfig
from wasmline.redrive.conversion import Conversion, ConversionTooLarge
from wasmline.redrive.dead_letter_reader import DeadLetterReader, StoredDeadLetter
from wasmline.redrive.redrive_plan import RedrivePlan
from wasmline.redrive.source_records import SourceRecords

logger = logging.getLogger(__name__)

MAX_TRANSACTION_DEAD_LETTERS = 500
MAX_TRANSACTION_BYTES = 2**20
"""Maximum bytes of the dead letters of a transaction of several."""

RETRY_TIMEOUT_S = 60.0
"""Seconds without progress for which a redrive is tried again while no broker answers."""

RETRY_DELAY_S = 1.0

REJECTED = "their topic rejects their record, by its time, its key or its size"


class _Converter(Protocol):
    """Makes the records to write of dead letters."""

    compression: str

    def convert(self, letters: Sequence[StoredDeadLetter]) -> Conversion: ...

    def require_current(self) -> None:
        """Raise DeploymentPaused or Conflict if nothing more may be written."""

    def close(self) -> None: ...


def run_redrive(
    config: KafkaConfig,
    plan: RedrivePlan,
    *,
    cause: ChangeCause = NO_CAUSE,
    redrive_id: str = "",
    progress: Callable[[Redrive], None] | None = None,
) -> Redrive:
    """Redrive the dead letters of a plan, and return what was done.

    One that was redriven is never redriven again, also after a kill at any moment: its record and the note of it are in
    one transaction. Those that cannot be redriven are counted as ``skipped``, and stay pending. A redrive that was
    begun with the same ``redrive_id`` is continued, up to its own ends: also one that is done and has skipped some.
    ``progress`` is called after each transaction.

    Raises InvalidRedrive if the topic was created again since the plan, or if another redrive has this id; Conflict if
    another redrive of the topic takes over, or the transform has another generation by now; DeploymentPaused if it was
    paused; UnsupportedSpecVersion where an earlier redrive cannot be read; the errors of the module, NotAuthorized and
    BrokerUnavailable: what was redriven by then stays so.
    """
    new = Redrive(
        id=redrive_id or uuid.uuid4().hex,
        topic=plan.topic.name,
        topic_id=plan.topic.id,
        selection=plan.selection,
        limit=plan.limit,
        ends=dict(plan.ends),
        to_topic=plan.to_topic,
        through=plan.deployment.spec.name if plan.deployment else None,
        generation=plan.deployment.generation if plan.deployment else None,
        cause=cause,
        started_ms=now_ms(),
        updated_ms=now_ms(),
    )
    with closing(_converter(config, plan)) as converter:
        run = _RedriveRun(config, new, converter, progress)
        while True:
            try:
                return run.attempt()
            except (BrokerUnavailable, OffsetOutOfRange) as error:  # retention may remove what is read next
                if time.monotonic() - run.progressed > RETRY_TIMEOUT_S:
                    raise
                logger.warning("the redrive of %s is tried again: %s", new.topic, error)
                time.sleep(random.uniform(0, RETRY_DELAY_S))


class _RedriveRun:
    """Attempts of one redrive; each begins with what the ones before have recorded."""

    def __init__(
        self,
        config: KafkaConfig,
        new: Redrive,
        converter: _Converter,
        progress: Callable[[Redrive], None] | None,
    ) -> None:
        self._config = config
        self._converter = converter
        self._progress = progress
        self._redrive = new
        self._writer: RedriveWriter | None = None
        self._state: RedriveState | None = None
        """What was redriven, as this run has written it since it opened the writer."""
        self._others: dict[str, Redrive] | None = None
        """Other redrives of the topic, as the first attempt found them."""
        self._skipped: Counter[str] = Counter()
        self.progressed = time.monotonic()

    def attempt(self) -> Redrive:
        """Redrive what is pending; see ``run_redrive``."""
        self._skipped.clear()
        try:
            reader, state = self._open()
            redrive = self._redrive
            if redrive.state == "done" and not redrive.skipped:
                return redrive
            for letters in _chunks(reader.pending(redrive.selection, state, redrive.ends), self._left):
                self._write_all(reader, letters)
            self._write(reader, Conversion(), state="done")
        finally:
            self._close()
        return self._redrive

    def _left(self) -> int:
        """Return the maximum number of dead letters of the next transaction."""
        limit = self._redrive.limit
        left = MAX_TRANSACTION_DEAD_LETTERS if limit is None else limit - self._redrive.dead_letters
        return min(left, MAX_TRANSACTION_DEAD_LETTERS)

    def _open(self) -> tuple[DeadLetterReader, RedriveState]:
        """Fence other redrives of the topic, and then read what it has and what was redriven of it.

        Another one that has worked since the first attempt is not fenced.
        """
        self._close()
        reader = DeadLetterReader(self._config, self._redrive.topic)
        self._require_same_topic(reader)
        if self._others is not None:
            self._continue(reader.state().redrives)
        self._writer = RedriveWriter(self._config, self._redrive.topic, self._converter.compression)
        self._state = reader.state()
        self._state.require_readable()
        self._continue(self._state.redrives)
        return reader, self._state

    def _reopen(self) -> None:
        """Open after a rejected transaction. Raises Conflict if another process has worked on this redrive meanwhile.

        The tries of an Airflow task share the id of their redrive.
        """
        before = self._state
        _, state = self._open()
        if before is not None and state.redrives != before.redrives:
            raise self._conflict()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _continue(self, known: Mapping[str, Redrive]) -> None:
        """Continue from the recorded state of this redrive. Raises Conflict if another one has worked meanwhile."""
        new = self._redrive
        others = {name: each for name, each in known.items() if name != new.id}
        if self._others is None:
            self._others = others
        elif self._others != others:
            raise self._conflict()
        recorded = known.get(new.id)
        if recorded is None:
            return
        if _request(recorded) != _request(new):
            text = f"redrive {new.id} of {new.topic} was begun with other dead letters, or to another place"
            raise InvalidRedrive(text, topic=new.topic)
        self._redrive = replace(recorded, generation=new.generation)

    def _require_same_topic(self, reader: DeadLetterReader) -> None:
        if reader.current_id() != self._redrive.topic_id:
            text = f"{self._redrive.topic} was deleted and created again: begin another redrive"
            raise InvalidRedrive(text, topic=self._redrive.topic)

    def _write_all(self, reader: DeadLetterReader, letters: Sequence[StoredDeadLetter]) -> None:
        """Redrive some dead letters in one transaction, or in several if a topic rejects one of their records."""
        try:
            self._write(reader, self._converter.convert(letters))
        except (ConversionTooLarge, RecordRejected) as error:
            if isinstance(error, RecordRejected):
                self._reopen()
            if len(letters) == 1:
                logger.warning("%s is not redriven: %s", letters[0].position, error)
                self._skipped[REJECTED] += 1
                return
            middle = len(letters) // 2
            for part in (letters[:middle], letters[middle:]):
                self._write_all(reader, part)

    def _write(
        self, reader: DeadLetterReader, converted: Conversion, state: Literal["running", "done"] = "running"
    ) -> None:
        assert self._writer is not None
        assert self._state is not None
        self._require_same_topic(reader)
        self._converter.require_current()
        done = [
            (letter.topic_partition.partition, letter.offset, letter.range_start) for letter in converted.dead_letters
        ]
        skipped = self._skipped + converted.skipped
        redrive = replace(
            self._redrive,
            state=state,
            dead_letters=self._redrive.dead_letters + len(done),
            outputs=self._redrive.outputs + converted.outputs,
            failed_again=self._redrive.failed_again + converted.failed_again,
            skipped=dict(skipped),
            updated_ms=now_ms(),
        )
        try:
            self._state = self._writer.write(self._state, redrive, done, converted.records)
        except Conflict as error:
            raise self._conflict() from error
        self._redrive, self._skipped = redrive, skipped
        self.progressed = time.monotonic()
        if self._progress is not None:
            self._progress(redrive)

    def _conflict(self) -> Conflict:
        redrive = self._redrive
        text = f"another redrive of {redrive.topic} took over; {redrive.dead_letters:,} dead letters of this one stay "
        text += "redriven: run it again when the other one has ended"
        return Conflict(text, name=redrive.topic, generation=None)


def _request(redrive: Redrive) -> tuple[DeadLetterSelection, int | None, str | None, str | None]:
    """Return what a redrive was asked for."""
    return redrive.selection, redrive.limit, redrive.to_topic, redrive.through


def _converter(config: KafkaConfig, plan: RedrivePlan) -> _Converter:
    if plan.deployment is None:
        return SourceRecords(
            config, plan.to_topic, plan.timestamps, plan.topic.name, source_topic=plan.selection.source_topic
        )
    from wasmline.redrive.transform_outputs import TransformOutputs  # imports the engine

    return TransformOutputs(config, plan.deployment)


def _chunks(letters: Iterable[StoredDeadLetter], left: Callable[[], int]) -> Iterator[list[StoredDeadLetter]]:
    """Yield the dead letters of one transaction after the other, at most ``left()`` in each, until that is 0."""
    chunk: list[StoredDeadLetter] = []
    size = 0
    for letter in letters:
        if chunk and (len(chunk) == left() or size + letter.size > MAX_TRANSACTION_BYTES):
            yield chunk
            chunk, size = [], 0
        if not left():
            return
        chunk.append(letter)
        size += letter.size
    if chunk:
        yield chunk
