from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from wasmline.errors import GuestTimeout, InstanceClosed
from wasmline.local.process import wait_until
from wasmline.testing import guests
from wasmline.wasm import ResourceLimits, TransformContext, TransformRuntime, check_abi
from wasmline.wasm import watchdog as watchdog_module

CONTEXT = TransformContext(name="under-test", input_topic="in", output_topics=("out",))
needs_fork = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs os.fork")


def guest_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "wasmline-under-test"]


def in_child(act: Any) -> Any:
    """Run a function in a forked child and return what it returned, or the name of what it raised."""
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        try:
            sender.send(act())
        except BaseException as error:
            sender.send(type(error).__name__)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    try:
        assert receiver.poll(60), "the child hangs"
        answer = receiver.recv()
        process.join(60)
        assert process.exitcode == 0
        return answer
    finally:
        process.kill()
        process.join()


def test_a_closed_instance_frees_its_thread_and_says_so(runtime: Any, records: Any) -> None:
    with runtime.compile(guests.guest()).instantiate(CONTEXT) as instance:
        assert guest_threads()
    assert guest_threads() == []
    instance.close()
    with pytest.raises(InstanceClosed, match="closed"):
        instance.transform(records([b"a"]))


def test_an_instance_that_nobody_closes_frees_its_thread(runtime: Any) -> None:
    runtime.compile(guests.guest()).instantiate(CONTEXT)
    assert wait_until(lambda: guest_threads() == [], 30)


def test_a_guest_that_cannot_start_leaves_no_thread(runtime: Any) -> None:
    with pytest.raises(GuestTimeout):
        runtime.compile(guests.guest(on_start=guests.SPIN)).instantiate(CONTEXT, ResourceLimits(cpu_ms_per_record=50))
    assert guest_threads() == []


def test_two_instances_run_in_two_threads(start: Any, records: Any) -> None:
    wasm = guests.guest(guests.WRITE + guests.when_key("p", guests.SPIN))
    batch = records([b"p" if row in (3, 40) else b"k%d" % row for row in range(100)])
    instances = [start(wasm, cpu_ms_per_record=100) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda instance: [instance.transform(batch) for _ in range(3)], instances))
    for result in (result for several in results for result in several):
        assert [failure.row for failure in result.failures] == [3, 40]
        assert result.outputs.num_rows == 98


def test_a_guest_killed_for_time_does_not_disturb_another(start: Any, records: Any) -> None:
    busy, calm = start(guests.guest(guests.SPIN), cpu_ms_per_record=300), start(guests.guest())
    with ThreadPoolExecutor(1) as pool:
        spinning = pool.submit(busy.transform, records([b"k"]))
        while not spinning.done():
            assert calm.transform(records([b"k"] * 100)).outputs.num_rows == 100
    assert isinstance(spinning.result().failures[0].error, GuestTimeout)


def test_the_watchdogs_thread_ends_with_the_last_running_guest(start: Any, records: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(watchdog_module, "_watchdog", watchdog_module.Watchdog(linger_ticks=2))
    instance = start(guests.guest())
    for _ in range(2):
        assert instance.transform(records([b"k"])).outputs.num_rows == 1
        thread = watchdog_module.watchdog()._thread
        assert thread is not None
        assert thread.daemon
        thread.join(60)
        assert not thread.is_alive()


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_instance_of_the_parent_is_refused_in_a_forked_child(start: Any, records: Any) -> None:
    instance = start(guests.guest())
    assert in_child(lambda: instance.transform(records([b"a"])).outputs.num_rows) == "InstanceClosed"
    assert in_child(lambda: instance.close()) is None
    assert instance.transform(records([b"a"])).outputs.num_rows == 1


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_compiles_and_runs_on_its_own(runtime: Any, start: Any, records: Any, tmp_path: Path) -> None:
    start(guests.guest()).transform(records([b"a"]))
    assert check_abi(guests.guest()) == 1
    poison = guests.guest(guests.WRITE + guests.when_key("p", guests.SPIN) + guests.log("new to every cache"))

    def child() -> list[Any]:
        assert check_abi(poison) == 1
        compiled = TransformRuntime(tmp_path).compile(poison)
        with compiled.instantiate(CONTEXT, ResourceLimits(cpu_ms_per_record=50)) as instance:
            result = instance.transform(records([b"a", b"p", b"b"]))
            rows: list[int] = result.outputs.column("row").to_pylist()
            return [*(type(failure.error).__name__ for failure in result.failures), *rows]

    assert in_child(child) == ["GuestTimeout", 0, 2]


def test_ctrl_c_ends_a_running_guest_and_the_instance_goes_on(start: Any, records: Any) -> None:
    instance = start(guests.guest(guests.WRITE + guests.when_key("p", guests.SPIN)))
    guest = instance._guest

    def interrupt() -> None:
        before = guest._memory.progress
        while guest._memory.progress == before:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    waiter = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        waiter.start()
        with pytest.raises(KeyboardInterrupt):
            instance.transform(records([b"p"]))
        waiter.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert instance.transform(records([b"k", b"k"])).outputs.num_rows == 2
    assert len(guest_threads()) == 1


def test_instances_leave_no_callbacks_behind(runtime: Any, records: Any) -> None:
    from wasmtime._func import FUNCTIONS

    compiled = runtime.compile(guests.guest())

    def once() -> None:
        with compiled.instantiate(CONTEXT) as instance:
            instance.transform(records([b"k"]))

    once()
    held = len(FUNCTIONS.handles)
    for _ in range(10):
        once()
    assert len(FUNCTIONS.handles) == held
