"""Trains a version of a model again from its recorded dataset, and compares the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wasmline.digests import digest_of
from wasmline.errors import TrainingError
from wasmline.printable import bounded_line
from wasmline.training.boosting import fit, library
from wasmline.training.dataset_slice import Dataset
from wasmline.training.feature_encoding import numbers
from wasmline.training.kept_rows import KeptRows
from wasmline.training.model_registry import ModelRegistry
from wasmline.training.plain_condition import is_plain_condition
from wasmline.training.prepare import Prepared, prepare
from wasmline.training.record_source import read_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from wasmline.kafka import KafkaConfig

_MAX_SEED = 2**63 - 1

MAX_RANGES = 1_000
"""Maximum ranges of a partition: Spark reads each by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltModel:
    """A version, ``digest``, and what its dataset gives now, ``rebuilt_digest``.

    ``training_rows`` and ``libraries`` are those of the version, the others those of now.
    """

    model: str
    version: str
    digest: str
    rebuilt_digest: str
    training_rows: int
    rebuilt_training_rows: int
    libraries: dict[str, str]
    rebuilt_libraries: dict[str, str]

    @property
    def is_same(self) -> bool:
        """Whether the bytes are the same."""
        return self.digest == self.rebuilt_digest

    @property
    def difference(self) -> str:
        """What is known to differ, other than the bytes; empty if nothing is."""
        differences = []
        if self.training_rows != self.rebuilt_training_rows:
            differences.append(f"{self.rebuilt_training_rows:,} training rows, and {self.training_rows:,} are recorded")
        if self.libraries != self.rebuilt_libraries:
            now, then = _text(self.rebuilt_libraries), _text(self.libraries)
            differences.append(f"{now}, and {then} is recorded")
        return "; ".join(differences)


def rebuild_model(
    spark: SparkSession, kafka: KafkaConfig, *, models: str, name: str, version: str, trust_condition: bool = False
) -> RebuiltModel:
    """Train a version again, from its topic or the kept rows of its slices; nothing is stored.

    The registry's record is untrusted: a condition that does more than compare fields is only evaluated with
    ``trust_condition``. Raises RecordsRemoved for records that are gone, TrainingError for a record that cannot be
    trained from, BrokerUnavailable, and the errors of ``ModelRegistry.get`` and ``KeptRows``.
    """
    stored = ModelRegistry(models).get(name, version)
    record = stored.record
    _require_usable(record.dataset, f"{name}@{version}", trust_condition=trust_condition)
    rows = _rows(spark, kafka, record.dataset, models=models, name=name).training
    layout = record.layout
    data = fit(layout.matrix(rows), numbers(rows[record.target]), layout.columns, record.parameters)
    return RebuiltModel(
        model=name,
        version=version,
        digest=stored.digest,
        rebuilt_digest=digest_of(data),
        training_rows=record.training_rows,
        rebuilt_training_rows=rows.num_rows,
        libraries=record.libraries,
        rebuilt_libraries=library(),
    )


def _require_usable(dataset: Dataset, place: str, *, trust_condition: bool) -> None:
    if not (dataset.offset_count and 0 < dataset.holdout_share < 1 and abs(dataset.seed) <= _MAX_SEED):
        raise TrainingError(f"the dataset of {place} has offsets, a seed or a holdout share that no training has")
    if (most := max(len(each) // 2 for each in dataset.offsets.values())) > MAX_RANGES:
        raise TrainingError(f"the dataset of {place} has {most:,} ranges of a partition, more than {MAX_RANGES:,}")
    if not trust_condition and not is_plain_condition(dataset.where, dataset.fields):
        raise TrainingError(
            f"the condition of {place} does more than compare fields: {bounded_line(dataset.where)!r}. Evaluated by "
            "Spark, it could run any code of its author on this machine: if you trust the registry, pass "
            "--trust-condition (trust_condition=True)"
        )


def _rows(spark: SparkSession, kafka: KafkaConfig, dataset: Dataset, *, models: str, name: str) -> Prepared:
    from pyspark.errors import PySparkException

    try:
        return prepare(read_records(spark, dataset, kafka, model=name, kept=KeptRows(models)), dataset)
    except PySparkException as error:
        raise TrainingError(f"the records of {name} cannot be read again: {bounded_line(error)}") from error


def _text(libraries: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(libraries.items())) or "no library"
