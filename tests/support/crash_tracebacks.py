"""Adds to the report of a crash how the process of pytest-xdist ended, and what faulthandler wrote in it.

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

STATUS_TIMEOUT_S = 30
"""Seconds until a process whose connection was lost has ended."""


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
    status = report.node.gateway._io.popen.wait(STATUS_TIMEOUT_S)
    tracebacks = Path(report.node.workerinput[TRACEBACKS]).read_text(errors="replace")
    report.longrepr = f"{report.longrepr}\nexit status {status}\n{tracebacks or 'faulthandler wrote nothing'}"
