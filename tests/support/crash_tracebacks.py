"""Adds to the report of a crash what faulthandler wrote in the process of pytest-xdist that ended.

It is written to a standard error that nobody keeps, and the report has the name of the test only.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from xdist.workermanage import WorkerController

TRACEBACKS = "tracebacks"
"""The key of the file's path in what the controller passes to a process."""


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    file = tempfile.NamedTemporaryFile(prefix="tracebacks-")  # noqa: SIM115  open until the run ends
    node.config.add_cleanup(file.close)
    node.workerinput[TRACEBACKS] = file.name


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    path = getattr(config, "workerinput", {}).get(TRACEBACKS)
    if path is not None:
        with Path(path).open("ab") as file:
            os.dup2(file.fileno(), config.stash[fault_handler_stderr_fd_key])


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(report: pytest.TestReport) -> None:
    tracebacks = Path(report.node.workerinput[TRACEBACKS]).read_text(errors="replace")
    report.longrepr = f"{report.longrepr}\n{tracebacks or 'faulthandler wrote nothing: it was killed, or has exited'}"
