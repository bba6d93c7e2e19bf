"""The order of the suite's files, for several processes at once: one file that computes, one that waits for brokers."""

from __future__ import annotations

from itertools import chain, groupby, zip_longest

import pytest

COMPUTING = ("system", "provider", "chaos", "spark", "simulation", "cli", "training", "dags", "build", "java", "wasm")
"""Folders whose tests start JVMs, compile or compute, those with the longest files first."""


def alternate(items: list[pytest.Item]) -> None:
    """Order the files of two kinds in turn, so that processors neither stand idle nor are all wanted at once."""
    files = [list(tests) for _, tests in groupby(items, lambda item: item.path)]
    computing = sorted((each for each in files if _rank(each) < len(COMPUTING)), key=_rank)
    waiting = [each for each in files if _rank(each) == len(COMPUTING)]
    items[:] = chain.from_iterable(chain.from_iterable(zip_longest(computing, waiting, fillvalue=())))


def _rank(file: list[pytest.Item]) -> int:
    folders = file[0].nodeid.split("/")
    return next(
        (rank for rank, folder in enumerate(COMPUTING) if folder in folders and "unit" not in folders), len(COMPUTING)
    )
