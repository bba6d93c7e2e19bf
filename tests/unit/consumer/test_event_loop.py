import asyncio
import threading
from collections.abc import Iterator

import pytest

from wasmline.consumer.runtime import event_loop
from wasmline.local.process import wait_until


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    """Begin without a loop, and leave none behind."""
    event_loop.abandon()
    yield
    end(event_loop.event_loop())
    event_loop.abandon()


def end(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon_threadsafe(loop.stop)
    assert wait_until(lambda: not loop.is_running(), 10)
    loop.close()


@pytest.mark.parametrize("highest", [event_loop.MAX_SELECT_FD, 0])
def test_timers_and_other_threads_end_a_wait(monkeypatch: pytest.MonkeyPatch, highest: int) -> None:
    monkeypatch.setattr(event_loop, "MAX_SELECT_FD", highest)
    loop, heard = event_loop.event_loop(), asyncio.Event()

    async def wait() -> str:
        await asyncio.sleep(0.0003)
        await heard.wait()
        return threading.current_thread().name

    waiting = asyncio.run_coroutine_threadsafe(wait(), loop)
    with pytest.raises(TimeoutError):
        waiting.result(0.05)
    loop.call_soon_threadsafe(heard.set)
    assert waiting.result(10) == "wasmline-asyncio"


def test_there_is_one_loop_until_a_handler_holds_it() -> None:
    loop = event_loop.event_loop()
    assert event_loop.event_loop() is loop
    event_loop.abandon()
    assert event_loop.event_loop() is not loop
    end(loop)


def test_the_loop_of_a_policy_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Special(asyncio.SelectorEventLoop):
        pass

    monkeypatch.setattr(asyncio, "new_event_loop", Special)
    assert type(event_loop.event_loop()) is Special
