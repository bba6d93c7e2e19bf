"""Selects and counts rows by the transforms that wrote them, as their provenance names these."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from wasmline.errors import TrainingError
from wasmline.registry.semver import newest
from wasmline.training.dataset_slice import Dataset
from wasmline.training.prepare import TRANSFORM, are_of, rows_within

log = logging.getLogger(__name__)

Rule = Literal["any", "newest"] | tuple[str, ...]
"""Whose records may be trained on: ``transform_versions`` of a TrainSpec."""

MAX_MODULES = 1_000
"""Maximum transforms of a dataset: its manifest is read whole, and the names are those of the topic's writers."""

MAX_COUNTED = 50
"""Maximum transforms that are counted by name in a result, which is one Kafka record."""

OTHERS = "others"
"""The name under which rows of further transforms are counted."""


def select_transforms(usable: pa.Table, rule: Rule) -> tuple[pa.Table, pa.Table]:
    """Return the rows of ``usable_rows`` that may be trained on, and the others.

    ``newest`` is the highest version of each transform, by semantic versioning; it and a list of ``name@version`` admit
    no record without provenance. A rule that admits less than half of the rows is warned of: a writer of the topic may
    name any version.
    """
    if rule == "any":
        return usable, usable.slice(0, 0)
    found = [each for each in usable[TRANSFORM].unique().to_pylist() if each]
    wanted = set(_newest(found) if rule == "newest" else rule)
    mask = are_of(usable[TRANSFORM], [each for each in found if _version(each) in wanted])
    admitted, others = usable.filter(mask), usable.filter(pc.invert(mask))
    if others.num_rows > admitted.num_rows:
        log.warning("transform_versions %s excludes %d of %d usable records", rule, others.num_rows, usable.num_rows)
    return admitted, others


def with_modules(dataset: Dataset, usable: pa.Table, rule: Rule) -> Dataset:
    """Return a dataset that names the transforms of its rows, ``name@version digest``, or "" for rows without one.

    If no row has one, nothing is named, nor are more than MAX_MODULES of ``any``: all rows are part of it then, too.
    Raises TrainingError for more of another rule.
    """
    modules = sorted(rows_within(usable, dataset.offsets)[TRANSFORM].unique().to_pylist())
    if len(modules) > MAX_MODULES:
        if rule == "any":
            log.warning("%s: %d transforms are more than a dataset names: it names none", dataset.topic, len(modules))
            return dataset
        raise TrainingError(
            f"the provenance of records of {dataset.topic} names {len(modules):,} transforms, more than the "
            f"{MAX_MODULES:,} of a dataset: name those to train on in transform_versions"
        )
    return replace(dataset, modules=() if modules == [""] else tuple(modules))


def count_transforms(rows: pa.Table, dataset: Dataset) -> dict[str, int]:
    """Return the number of the dataset's rows by transform, in order; "" has those without provenance.

    Of more than MAX_COUNTED, those with the fewest rows are counted together, as OTHERS.
    """
    counted = pc.value_counts(rows_within(rows, dataset.offsets)[TRANSFORM])
    names, numbers = (counted.field(place).to_pylist() for place in range(2))
    ordered = sorted(zip(names, numbers, strict=True), key=lambda pair: (-pair[1], pair[0]))
    counts = dict(sorted(ordered[:MAX_COUNTED]))
    if rest := sum(number for _, number in ordered[MAX_COUNTED:]):
        counts[OTHERS] = rest
    return counts


def _newest(transforms: Iterable[str]) -> list[str]:
    """Return the newest ``name@version`` of each name."""
    versions: dict[str, list[str]] = defaultdict(list)
    for each in transforms:
        name, _, version = _version(each).partition("@")
        versions[name].append(version)
    highest = ((name, newest(its)) for name, its in versions.items())
    return [f"{name}@{version}" for name, version in highest if version is not None]


def _version(transform: str) -> str:
    """Return the ``name@version`` of ``name@version digest``."""
    return transform.partition(" ")[0]
