"""Divides the time limit of a request into attempts."""

from __future__ import annotations

import math
import time

ATTEMPT_TIMEOUT_S = 3.0
"""Seconds of the first attempt: a request to a broker that has died is neither answered nor failed."""

ATTEMPT_GROWTH = 1.5
"""How much longer the next attempt may take than one without an answer: a slow cluster answers a later one."""

MIN_ATTEMPT_S, MAX_ATTEMPT_S = 0.1, 60.0
"""Seconds that an attempt has at least, and at most."""


class Attempts:
    """Divides a time limit of ``timeout`` seconds into attempts. One that got no answer in its time makes the next
    longer."""

    def __init__(self, timeout: float) -> None:
        self._deadline = time.monotonic() + timeout
        self._longest = ATTEMPT_TIMEOUT_S
        self._due = math.inf

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._deadline - time.monotonic())

    @property
    def are_over(self) -> bool:
        """Whether no time is left."""
        return not self.left

    def begin(self) -> float:
        """Return the seconds of the next attempt."""
        now = time.monotonic()
        if now >= self._due:
            self._longest = min(MAX_ATTEMPT_S, self._longest * ATTEMPT_GROWTH)
        seconds = max(MIN_ATTEMPT_S, min(self._longest, self._deadline - now))
        self._due = now + seconds
        return seconds
