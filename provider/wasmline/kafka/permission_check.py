"""Tells a missing ACL from a denial that passes: a broker that starts may deny requests for a moment."""

from __future__ import annotations

from wasmline.errors import NotAuthorized


class PermissionCheck:
    """One kind of request, whose failures are otherwise only logged. For one thread at a time.

    Until one has succeeded, a denial means that an ACL is missing. After that it may pass.
    """

    def __init__(self) -> None:
        self._is_permitted = False

    def passed(self) -> None:
        """Note that a request has succeeded."""
        self._is_permitted = True

    def is_missing(self, error: Exception) -> bool:
        """Return whether the error of a request means that an ACL is missing."""
        return isinstance(error, NotAuthorized) and not self._is_permitted
