from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from wasmline.background_call import BackgroundCall, call_each
from wasmline.local.process import wait_until


class Large:
    """What a frame holds."""


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def fail() -> None:
    raise ValueError("it fails")


@pytest.mark.usefixtures("without_collector")
def test_an_error_keeps_no_frame_that_has_taken_it() -> None:
    def take() -> weakref.ref[Large]:
        large = Large()
        call = BackgroundCall(fail)
        with pytest.raises(ValueError, match="it fails"):
            call.result()
        return weakref.ref(large)

    assert take()() is None


@pytest.mark.usefixtures("without_collector")
def test_an_error_that_nobody_takes_keeps_no_frame() -> None:
    begun, fails = threading.Event(), threading.Event()

    def give_up() -> weakref.ref[Large]:
        large = Large()

        def hang(_: Large) -> None:
            begun.set()
            fails.wait()
            fail()

        call = BackgroundCall(partial(hang, large))
        begun.wait()
        assert not call.wait(0.0)
        return weakref.ref(large)

    given_up = give_up()
    fails.set()
    assert wait_until(lambda: given_up() is None, 10.0)


def test_a_single_name_is_called_for_in_another_thread_too() -> None:
    """Where another exception is handled meanwhile, an error of confluent-kafka would keep that for ever."""
    assert call_each(["name"], lambda _: threading.current_thread()) != {"name": threading.current_thread()}


def test_an_error_that_has_been_raised_is_not_raised_again() -> None:
    call = BackgroundCall(fail)
    with pytest.raises(ValueError, match="it fails"):
        call.result()
    with pytest.raises(RuntimeError, match="raised before"):
        call.result()
