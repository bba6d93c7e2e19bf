"""Virtual time and cooperative actors: what production code takes for threads, clocks and queues, without any.

An actor is a greenlet. It runs until it asks for a step, sleeps or waits; the history then decides which actors go on,
and time moves only where all of them wait. Nothing here depends on the clock, on threads or on hashes.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable
from queue import Empty
from typing import Any

from greenlet import getcurrent, greenlet

EPOCH_S = 1_700_000_000.0
"""Unix time at which a history begins."""

STEP_S = 0.001
"""Virtual seconds that each step of an actor takes."""


class Killed(BaseException):
    """The process of this actor is gone: nothing that it still does has an effect."""


class Process:
    """One operating system process of a run: its actors end together, and its globals are its own.

    run: what the process belongs to; actors of one run are advanced together.
    """

    def __init__(self, run: str, name: str) -> None:
        self.run = run
        self.name = name
        self.is_alive = True
        self.is_frozen = False
        self.steps = 0
        self.wakes = 0
        """How often it has gone on after it stood still, and for how many seconds it stood still at most."""
        self.slept_s = 0.0
        self.frozen_s = 0.0
        """When it stood still last."""
        self.globals: dict[str, dict[Any, Any]] = {}

    def freeze(self, now: float) -> None:
        """Stand still."""
        self.is_frozen, self.frozen_s = True, now

    def thaw(self, now: float) -> None:
        """Go on."""
        self.is_frozen = False
        self.wakes += 1
        self.slept_s = max(self.slept_s, now - self.frozen_s)


class Actor:
    """One thread of a process."""

    def __init__(self, runtime: Runtime, process: Process, call: Callable[[], Any]) -> None:
        self.process = process
        self.number = next(runtime.numbers)
        self.is_done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.ready: Callable[[], bool] | None = None
        self.until: float | None = None
        """What it waits for, and until when; it goes on where both are None."""
        self._call = call
        self.greenlet = greenlet(self._run, runtime.hub)

    def _run(self) -> None:
        try:
            self.result = self._call()
        except BaseException as error:
            self.error = error
        finally:
            self.is_done = True

    def can_run(self, now: float) -> bool:
        until = self.until
        if self.ready is None:
            return until is None or now >= until
        return self.ready() or (until is not None and now >= until)


class Runtime:
    """All actors of a history, and its time. ``seconds`` counts from the history's begin."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.steps = 0
        self.trace = 0
        """A digest of all steps: equal for equal histories."""
        self.hub = getcurrent()
        self.actors: list[Actor] = []
        self.numbers = itertools.count(1)
        self.on_time: Callable[[], None] = lambda: None
        """Called when time has moved."""
        self.actor: Actor | None = None
        """The actor that runs, or None where the history itself does."""
        self._has_dead = False
        self._served = 0
        """The actor that ran last."""

    # -- for actors ---------------------------------------------------------------------------------------------------

    @property
    def process(self) -> Process:
        """The process that runs."""
        actor = self.actor
        return actor.process if actor is not None else OUTSIDE

    def step(self) -> None:
        """Let others go first; raise Killed where this actor's process has ended meanwhile."""
        if (actor := self.actor) is not None:
            self._switch(actor, None, None)

    def sleep(self, seconds: float) -> None:
        self.block(lambda: False, seconds)

    def block(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until something is so, or for so many seconds; return whether it is."""
        actor = self.actor
        if actor is not None and not actor.process.is_alive:
            raise Killed
        if ready():
            return True
        if timeout is not None and timeout <= 0:
            return False
        until = None if timeout is None else self.seconds + timeout
        if actor is None:
            if until is None:
                while not ready():
                    if not self.advance([OUTSIDE.run], 1):
                        raise RuntimeError("the history itself waits for ever")
                return True
            self.pass_time(until - self.seconds)
            return ready()
        self._switch(actor, ready, until)
        return ready()

    def spawn(self, call: Callable[[], Any], process: Process | None = None) -> Actor:
        """Begin an actor, in the process that runs or another one."""
        actor = Actor(self, process or self.process, call)
        self.actors.append(actor)
        return actor

    def _switch(self, actor: Actor, ready: Callable[[], bool] | None, until: float | None) -> None:
        if not actor.process.is_alive:
            raise Killed
        actor.ready, actor.until = ready, until
        self.hub.switch()
        if not actor.process.is_alive:
            raise Killed

    # -- for the history ----------------------------------------------------------------------------------------------

    def advance(self, runs: Collection[str], steps: int) -> int:
        """Let the actors of some runs take so many steps in turn; return how many they took: fewer where all ended."""
        for taken in range(steps):
            if self._has_dead:
                self._reap()
            chosen, times = self._look(runs)
            if chosen is None and times is None:
                return taken
            if chosen is None:
                if not times:
                    raise RuntimeError(f"the actors of {runs} wait for each other")
                self.pass_time(min(times) - self.seconds)
                self.seconds = max(self.seconds, min(times))  # the sum of floats may be a little less
                chosen, _ = self._look(runs)
                assert chosen is not None
            self._served = chosen.number
            self.seconds += STEP_S
            self._resume(chosen)
        return steps

    def _look(self, runs: Collection[str]) -> tuple[Actor | None, list[float] | None]:
        """Return the actor of some runs whose turn it is, and until when those wait that cannot run.

        The times are None where the runs have no actor. All are asked: what one waits for may take note of that.
        """
        first = following = None
        times: list[float] | None = None
        for each in self.actors:  # by their numbers
            process = each.process
            if process.run not in runs or process.is_frozen:
                continue
            if times is None:
                times = []
            if (each.ready is None and each.until is None) or each.can_run(self.seconds):
                first = first or each
                if following is None and each.number > self._served:
                    following = each
            elif each.until is not None:
                times.append(each.until)
        return following or first, times

    def pass_time(self, seconds: float) -> None:
        self.seconds += max(0.0, seconds)
        self.on_time()

    def kill(self, processes: Iterable[Process]) -> None:
        """End processes at once: their actors unwind without any effect, here or as soon as an actor lets them."""
        for process in processes:
            process.is_alive = False
            self._has_dead = True
        if self.actor is None:
            self._reap()

    def close(self) -> None:
        """End all processes. What is left suspended would be unwound by a garbage collection, in a later history."""
        self.kill([each.process for each in self.actors])

    def _reap(self) -> None:
        while dead := next((each for each in self.actors if not each.process.is_alive), None):
            self._resume(dead)
        self._has_dead = False

    def _resume(self, actor: Actor) -> None:
        self.steps += 1
        actor.process.steps += 1
        self.trace = hash((self.trace, actor.number, self.seconds))
        actor.ready = actor.until = None
        self.actor = actor
        actor.greenlet.switch()
        self.actor = None
        if actor.is_done:
            self.actors.remove(actor)


OUTSIDE = Process("", "outside")
"""Where what the history does by itself runs."""


class Time:
    """Stands for the module ``time``."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def monotonic(self) -> float:
        return self._runtime.seconds

    perf_counter = monotonic

    def clock_gettime(self, _: int) -> float:
        return self._runtime.seconds

    def time(self) -> float:
        return EPOCH_S + self._runtime.seconds

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def sleep(self, seconds: float) -> None:
        self._runtime.sleep(seconds)


class Threading:
    """Stands for the module ``threading``."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def get_ident(self) -> int:
        actor = self._runtime.actor
        return actor.number if actor is not None else 0

    def Lock(self) -> Lock:  # noqa: N802 - the module's name
        return Lock(self._runtime)

    def Event(self) -> Event:  # noqa: N802 - the module's name
        return Event(self._runtime)

    def Thread(self, **given: Any) -> Thread:  # noqa: N802 - the module's name
        return Thread(self._runtime, **given)


class Lock:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._holder: Process | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        limit = 0.0 if not blocking else None if timeout < 0 else timeout
        if not self._runtime.block(self._is_free, limit):
            return False
        self._holder = self._runtime.process
        return True

    def release(self) -> None:
        self._holder = None

    def _is_free(self) -> bool:
        return self._holder is None or not self._holder.is_alive

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Event:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        return self._runtime.block(self.is_set, timeout)


class Thread:
    def __init__(
        self,
        runtime: Runtime,
        *,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        name: str = "",
        daemon: bool = False,
    ) -> None:
        self.name = name
        self._runtime = runtime
        self._call = lambda: target(*args)
        self._actor: Actor | None = None

    def start(self) -> None:
        self._actor = self._runtime.spawn(self._call)

    def is_alive(self) -> bool:
        return self._actor is not None and not self._actor.is_done

    def join(self, timeout: float | None = None) -> None:
        self._runtime.block(lambda: not self.is_alive(), timeout)


class Queue:
    """Stands for SimpleQueue."""

    runtime: Runtime

    def __init__(self) -> None:
        self._items: deque[Any] = deque()

    def __class_getitem__(cls, _: Any) -> type[Queue]:
        return cls

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self.runtime.block(lambda: bool(self._items), timeout if block else 0.0):
            raise Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items


class Future:
    """Stands for concurrent.futures.Future, as far as it is used to ask another thread."""

    runtime: Runtime

    def __init__(self) -> None:
        self._is_set = False
        self._result: Any = None

    def __class_getitem__(cls, _: Any) -> type[Future]:
        return cls

    def set_result(self, result: Any) -> None:
        self._result, self._is_set = result, True

    def result(self, timeout: float | None = None) -> Any:
        if not self.runtime.block(lambda: self._is_set, timeout):
            raise TimeoutError
        return self._result
