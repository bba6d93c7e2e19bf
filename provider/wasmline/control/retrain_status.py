"""The status of the retrain conditions of a model in the job topic.

Key: ``m/retrain`` holds the RetrainStatus of model ``m``. Neither a model's name nor a job's has a slash, and no record
of a job has a key of this kind.
The fields: docs/protocols/control_topics.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Literal

from wasmline.control import control_topics
from wasmline.documents import decode, encode
from wasmline.errors import UnsupportedSpecVersion
from wasmline.kafka import CompactedTopic, KafkaConfig, RecordWriter
from wasmline.registry.semver import by_precedence

logger = logging.getLogger(__name__)

READ_INTERVAL_S = 600.0
"""Seconds after which a writer reads again which live errors others have written: it reads the whole topic."""

MAX_LIVE_ERRORS = 50
"""Maximum versions of a model whose live errors are kept: the highest ones."""

KEY_SUFFIX = b"/retrain"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainCheck:
    """A condition as it was observed, in one sentence. ``is_met`` is None if there is too little to measure."""

    condition: str
    text: str
    is_met: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainStatus:
    """The conditions of a model's retraining, as a RetrainMonitor observed them last.

    champion: the live version; None without one, or if it cannot be read.
    new_records: the offsets of ``topic`` that no slice has.
    expected_rmse: the error that the champion's training expects, live_rmse: its live error. None: not measured.
    age_s: seconds since the model was trained last.
    live_errors: the last measured live error of each version that was the champion, of MAX_LIVE_ERRORS at most.
    """

    model: str
    topic: str
    champion: str | None
    new_records: int
    checks: tuple[RetrainCheck, ...]
    expected_rmse: float | None
    live_rmse: float | None
    age_s: float | None
    observed_ms: int
    live_errors: dict[str, float] = field(default_factory=dict)
    spec_version: Literal[1] = 1

    @property
    def text(self) -> str:
        """The checks in one sentence."""
        return "; ".join(each.text for each in self.checks)


def retrain_status_key(model: str) -> bytes:
    """Return the key of the status of a model's retrain conditions."""
    return model.encode() + KEY_SUFFIX


def model_of_retrain_status(key: bytes) -> str | None:
    """Return the model whose retrain conditions a record of the job topic is about; None for another record."""
    model = key.removesuffix(KEY_SUFFIX)
    is_status = key.endswith(KEY_SUFFIX) and model and b"/" not in model
    return model.decode(errors="replace") if is_status else None


class RetrainStatusTopic:
    """Reads and writes the status of one model's retrain conditions. Of several writers, the last one wins.

    It holds a producer, and opens a consumer for each reading. For one thread.
    """

    def __init__(self, config: KafkaConfig, model: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        control_topics.ensure(config)
        self._key = key = retrain_status_key(model)
        self._topic = CompactedTopic(config, control_topics.JOBS, keep=lambda each: each == key)
        self._writer = RecordWriter(config)
        self._clock = clock
        self._live_errors: dict[str, float] = {}
        self._read_at: float | None = None

    def read(self) -> RetrainStatus | None:
        """Return the last status; None without one, or for one that this release cannot read.

        Raises BrokerUnavailable, NotAuthorized.
        """
        with closing(self._topic):  # it would receive all records of all jobs until the next reading
            value = self._topic.read().get(self._key)
        try:
            return decode(RetrainStatus, value) if value is not None else None
        except UnsupportedSpecVersion as error:
            logger.warning("the retrain status %s is skipped: %s", self._key.decode(), error)
            return None

    def write(self, status: RetrainStatus) -> RetrainStatus:
        """Write a status with the live errors that are known, and return it once every in-sync replica has it.

        Those that others wrote are read before the first write, and every READ_INTERVAL_S. Raises BrokerUnavailable,
        NotAuthorized.
        """
        now = self._clock()
        if self._read_at is None or now - self._read_at >= READ_INTERVAL_S:
            before = self.read()
            self._live_errors |= before.live_errors if before else {}
            self._read_at = now
        self._live_errors = kept_live_errors(self._live_errors, status)
        written = replace(status, live_errors=self._live_errors)
        self._writer.write(control_topics.JOBS, [(self._key, encode(written), [], None)])
        return written

    def close(self) -> None:
        """Close the Kafka clients."""
        self._topic.close()
        self._writer.close()


def kept_live_errors(before: Mapping[str, float], status: RetrainStatus) -> dict[str, float]:
    """Return the live errors to keep: that of the champion, and those of the highest of the other versions."""
    errors = {**before}
    champion = status.champion
    if champion is not None and status.live_rmse is not None:
        errors[champion] = status.live_rmse
    others = by_precedence([version for version in errors if version != champion])
    own = [champion] if champion in errors else []
    return {version: errors[version] for version in [*others[len(own) - MAX_LIVE_ERRORS :], *own]}
