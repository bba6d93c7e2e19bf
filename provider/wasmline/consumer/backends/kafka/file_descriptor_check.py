"""Compares the open files that producers need with the limit of the process."""

from __future__ import annotations

from pathlib import Path

from wasmline.errors import InvalidConsumerOption

FILES_PER_PRODUCER = 9
"""Open files of one producer: sockets, the pipes that wake its threads, an epoll."""

DESCRIPTORS = Path("/proc/self/fd")
"""Folder of a process's open files on Linux; elsewhere nothing is compared."""


def require_file_descriptors(producers: int) -> None:
    """Raise InvalidConsumerOption if this many more producers need more files than RLIMIT_NOFILE allows."""
    if not DESCRIPTORS.exists():
        return
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used, needed = sum(1 for _ in DESCRIPTORS.iterdir()), producers * FILES_PER_PRODUCER
    if limit != resource.RLIM_INFINITY and used + needed > limit:
        text = f"exactly_once needs {needed} more files, {FILES_PER_PRODUCER} for each of {producers} partitions, and "
        text += f"this process has {used} of {limit}: raise its limit (ulimit -n), or run more members in the group"
        raise InvalidConsumerOption(text, option="delivery")
