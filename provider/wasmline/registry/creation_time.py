"""The creation time of an artifact, which a build may fix for equal bytes (reproducible-builds.org)."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime

from wasmline.errors import InvalidArtifact

VARIABLE = "SOURCE_DATE_EPOCH"

_SECONDS = re.compile(r"[0-9]{1,11}")


def created_now() -> str:
    """Return the time of SOURCE_DATE_EPOCH if it is set, else the current time, in RFC 3339.

    Raises InvalidArtifact for a value that is not a count of seconds.
    """
    epoch = os.environ.get(VARIABLE)
    if epoch and not _SECONDS.fullmatch(epoch):
        raise InvalidArtifact(f"{VARIABLE} is {epoch[:40]!r}: set it to whole seconds since 1970-01-01, or unset it")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
