"""Runs hostile guests in a subprocess: a host that crashes is a failed test, not a dead test suite."""

from __future__ import annotations

import gc
import multiprocessing
import resource
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from wasmline.wasm import ResourceLimits, TransformContext, TransformResult, TransformRuntime

CONTEXT = TransformContext(name="guest", input_topic="in", output_topics=("out", "rest"))


class HostDied(Exception):
    """The process that ran the guest ended, or did not answer in time."""


class Sandbox:
    """Runs guests in a spawned process, which is replaced when a guest ends it."""

    def __init__(self, *, timeout_s: float = 120) -> None:
        self.calls = 0
        """Number of calls of the current process."""
        self._timeout = timeout_s
        self._process: multiprocessing.process.BaseProcess | None = None

    def transform(self, wasm: bytes, batches: Sequence[pa.RecordBatch], **limits: int) -> list[TransformResult]:
        """Return one instance's results for the batches, or raise its error, or HostDied."""
        results: list[TransformResult] = self.call(serve, wasm, batches, ResourceLimits(**limits))
        return results

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of an importable function there; raise its error, or HostDied."""
        if self._process is None:
            self._start()
        self.calls += 1
        try:
            self._connection.send((function, arguments))
            if not self._connection.poll(self._timeout):
                raise HostDied(f"no answer for {self._timeout} s")
            good, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise HostDied(f"the process ended with exit code {self._end()}") from error
        except HostDied:
            self._end()
            raise
        if good:
            return answer
        raise answer

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process. The next call starts another."""
        if self._process is not None:
            self._connection.close()
            self._end()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._connection, far = spawn.Pipe()
        self._process = spawn.Process(target=_serve_calls, args=(far,), daemon=True)
        self._process.start()
        far.close()
        self.calls = 0

    def _end(self) -> int | None:
        assert self._process is not None
        self._process.join(1)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        code = self._process.exitcode
        self._process = None
        return code


def serve(wasm: bytes, batches: Sequence[pa.RecordBatch], limits: ResourceLimits) -> list[TransformResult]:
    """Run batches through one instance of a module, in this process."""
    with _runtime().compile(wasm).instantiate(CONTEXT, limits) as instance:
        return [instance.transform(batch) for batch in batches]


def soak(wasm: bytes, batch: pa.RecordBatch, times: int, limits: ResourceLimits) -> list[int]:
    """Run a batch through one instance many times; return this process's resident bytes at ten moments.

    Needs Linux's ``/proc``.
    """
    sizes = []
    with _runtime().compile(wasm).instantiate(CONTEXT, limits) as instance:
        for _ in range(10):
            for _ in range(times // 10):
                instance.transform(batch)
            gc.collect()
            sizes.append(_resident_bytes())
    return sizes


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _serve_calls(connection: Connection) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _folders.append(Path(folder))
        while True:
            try:
                function, arguments = connection.recv()
            except EOFError:
                return
            try:
                answer = True, function(*arguments)
            except Exception as error:
                answer = False, error
            connection.send(answer)


_folders: list[Path] = []


def _runtime() -> TransformRuntime:
    return TransformRuntime(_folders[-1] if _folders else None)
