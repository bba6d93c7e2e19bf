"""Failure window: above its allowed share of failures the deployment is at fault, not its records."""

from __future__ import annotations

from wasmline.errors import TooManyFailures

WINDOW_RECORDS = 100
"""Minimum number of records in a window."""


class FailureWindow:
    """Judges the share of failed records over windows of WINDOW_RECORDS or more, a batch at a time."""

    def __init__(self, max_share: float) -> None:
        self._max_share = max_share
        self._records = 0
        self._failures = 0

    def add(self, records: int, failures: int) -> None:
        """Count a batch. Raises TooManyFailures if a full window has a larger share of failures than allowed."""
        self._records += records
        self._failures += failures
        if self._records < WINDOW_RECORDS:
            return
        share = self._failures / self._records
        if share > self._max_share:
            text = f"{self._failures} of {self._records} records failed; the allowed share is {self._max_share:.0%}"
            raise TooManyFailures(text, share=share)
        self._records = self._failures = 0
