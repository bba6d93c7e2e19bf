"""Hands files out to the processes of pytest-xdist, also after one of these has crashed."""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]
    """That of ``--dist loadfile``, mended: in release 3.8, a crash leaves all processes waiting for each other.

    The files that the crashed process had finished are handed out again (pytest-dev/pytest-xdist#1378), and its
    successor may get a single test, which it keeps until there is another one (#1327). It is also given files before
    it has collected them, which ends the run or hides a crash.
    """

    def remove_node(self, node: WorkerController) -> str | None:
        files = self.assigned_work[node]
        for name in [name for name, tests in files.items() if all(tests.values())]:
            del files[name]
        crashed: str | None = super().remove_node(node)
        return crashed

    def schedule(self) -> None:
        super().schedule()
        if self.collection:
            super().schedule()  # a second file, or the end of the process

    def _reschedule(self, node: WorkerController) -> None:
        if node in self.registered_collections:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
