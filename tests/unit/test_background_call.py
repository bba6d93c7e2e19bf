from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from wasmline.background_call import BackgroundCall, call_each


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


def test_a_single_name_is_called_for_in_another_thread_too() -> None:
    """Where another exception is handled meanwhile, an error of confluent-kafka would keep that for ever."""
    assert call_each(["name"], lambda _: threading.current_thread()) != {"name": threading.current_thread()}


def test_an_error_that_has_been_raised_is_not_raised_again() -> None:
    call = BackgroundCall(fail)
    with pytest.raises(ValueError, match="it fails"):
        call.result()
    with pytest.raises(RuntimeError, match="raised before"):
        call.result()
