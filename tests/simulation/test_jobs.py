"""Whole jobs on the cluster in memory: any runs, in any mode and delivery, and whatever befalls them in between."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, note, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from support.simulation.bound_code import bound  # noqa: F401 - every test of this module uses it
from support.simulation.clients import MOMENTS
from support.simulation.history import COUNTS, MODES, PLACES, History, Run, Violation

EXACT_MODES = [each for each in MODES if each[1] == "exactly_once"]
BEFALLS = ["crash", "stop", "lose_worker", "freeze_worker", "freeze_or_thaw_driver"]
FATES = ["plain", "committed", "aborted"]
CHANGES = [
    *("visit", "leave", "pause", "resume", "redeploy", "repair", "add_partition", "lose_checkpoints", "forget_group"),
    *("recreate_topic", "change_release"),
]
DISTURBANCES = [-8, -3, -1, 1, 3, 8, 0.2, 0.5, 1.0]
"""Records that the group's progress is moved by, and shares of the log that retention removes."""

OUTAGES = [1, 8, 25, 90]
"""Seconds."""

DAYS = [0.01, 1, 3, 6, 8]
MOMENT = st.tuples(st.sampled_from(MOMENTS), st.integers(1, 4))
Mode = tuple[str, str]
Moment = tuple[str, int]
STEPS = st.sampled_from([1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144])


class Jobs(RuleBasedStateMachine):
    """One job."""

    @initialize(
        partitions=st.integers(1, 3),
        starting=st.sampled_from(["earliest", "latest"]),
        takes_columns=st.booleans(),
        reads_directly=st.booleans(),
    )
    def begin(self, partitions: int, starting: str, takes_columns: bool, reads_directly: bool) -> None:
        self.history = History(
            partitions=partitions, starting=starting, takes_columns=takes_columns, reads_directly=reads_directly
        )

    @rule(partition=st.integers(0, 2), count=st.integers(1, 12), fate=st.sampled_from(FATES), is_slow=st.booleans())
    def produce(self, partition: int, count: int, fate: str, is_slow: bool) -> None:
        self.history.produce(partition, count, fate=fate, is_slow=is_slow)

    @rule(mode=st.sampled_from(MODES), records=st.integers(0, 8), is_endless=st.booleans(), steps=STEPS)
    def start(self, mode: Mode, records: int, is_endless: bool, steps: int) -> None:
        """A run begins, and gets so far."""
        self.history.produce_everywhere(records)
        self.history.advance(self.history.start(*mode, is_endless=is_endless), steps)

    @rule(mode=st.sampled_from(MODES), records=st.integers(0, 8))
    def run(self, mode: Mode, records: int) -> None:
        """A run begins, and is left alone until its end."""
        self.history.produce_everywhere(records)
        self.history.finish(self.history.start(*mode))

    @rule(
        mode=st.sampled_from(MODES),
        records=st.integers(1, 8),
        steps=st.integers(0, 12),
        how=st.sampled_from(["crash", "lose_worker", "freeze_worker"]),
    )
    def start_and_fail(self, mode: Mode, records: int, steps: int, how: str) -> None:
        """A run begins, and something befalls it while a task is at work."""
        self.history.produce_everywhere(records)
        run = self.history.start(*mode)
        self.history.advance_into_task(run, steps)
        if not run.is_over:
            getattr(self.history, how)(run)

    @rule(
        mode=st.sampled_from(MODES),
        records=st.integers(1, 8),
        is_endless=st.booleans(),
        moment=MOMENT,
    )
    def start_to(self, mode: Mode, records: int, is_endless: bool, moment: Moment) -> None:
        """A run begins, and is held before something that matters."""
        self.history.produce_everywhere(records)
        self.history.advance_to(self.history.start(*mode, is_endless=is_endless), *moment)

    @rule(mode=st.sampled_from(MODES), records=st.integers(0, 8), is_endless=st.booleans(), steps=STEPS)
    def hand_over(self, mode: Mode, records: int, is_endless: bool, steps: int) -> None:
        """A run begins while others are at work, beside which it goes on."""
        self.history.produce_everywhere(records)
        self.history.start(*mode, is_endless=is_endless)
        self.history.advance_all(10 * steps)

    @rule(
        modes=st.tuples(st.sampled_from(MODES), st.sampled_from(MODES)),
        records=st.integers(1, 8),
        is_endless=st.booleans(),
        moments=st.tuples(MOMENT, MOMENT, MOMENT),
    )
    def overtake(
        self, modes: tuple[Mode, Mode], records: int, is_endless: bool, moments: tuple[Moment, Moment, Moment]
    ) -> None:
        """A run is held, and so is the next one; then the first goes on before the second one does."""
        self.history.produce_everywhere(records)
        older = self.history.start(*modes[0], is_endless=is_endless)
        self.history.advance_to(older, *moments[0])
        self.history.produce_everywhere(1)
        newer = self.history.start(*modes[1])
        self.history.advance_to(newer, *moments[1])
        self.history.advance_to(older, *moments[2])
        if not newer.is_over:
            self.history.finish(newer)

    @rule(
        modes=st.tuples(st.sampled_from(MODES), st.sampled_from(MODES)),
        records=st.integers(1, 8),
        moment=MOMENT,
        steps=STEPS,
    )
    def leave_behind(self, modes: tuple[Mode, Mode], records: int, moment: Moment, steps: int) -> None:
        """A task stands still while the next run does everything, and goes on then."""
        self.history.produce_everywhere(records)
        older = self.history.start(*modes[0])
        self.history.advance_into_task(older, 0)
        self.history.advance_to(older, *moment)
        if older.is_over:
            return
        zombies = len(self.history.zombies)
        self.history.freeze_worker(older)
        self.history.finish(self.history.start(*modes[1]))
        for zombie in self.history.zombies[zombies:]:
            self.history.wake(zombie, 10 * steps)

    @rule(modes=st.tuples(st.sampled_from(MODES), st.sampled_from(MODES)), records=st.integers(4, 12), moment=MOMENT)
    def crash_at(self, modes: tuple[Mode, Mode], records: int, moment: Moment) -> None:
        """A run is killed before something that matters, and the next one is left alone."""
        self.history.produce_everywhere(records)
        run = self.history.start(*modes[0])
        self.history.advance_into_task(run, 0)
        self.history.advance_to(run, *moment)
        if not run.is_over:
            self.history.crash(run)
        self.history.finish(self.history.start(*modes[1]))

    @precondition(lambda self: self.history.is_under_way)
    @rule(mode=st.sampled_from(MODES), partition=st.integers(0, 2), by=st.sampled_from([-3, 3]), steps=STEPS)
    def move_beside(self, mode: Mode, partition: int, by: int, steps: int) -> None:
        """Somebody moves the group's progress while a run that has done something waits for more."""
        self.history.produce_everywhere(4)
        run = self.history.start(*mode, is_endless=True)
        self.history.advance_to(run, "done")
        self.history.advance(run, steps)
        self.history.move(partition, by)
        for _ in range(3):
            self.history.produce_everywhere(1)
            self.history.advance(run, 150)

    @rule(mode=st.sampled_from(MODES), partition=st.integers(0, 2), days=st.lists(st.sampled_from(DAYS), max_size=3))
    def run_at_times(self, mode: Mode, partition: int, days: list[float]) -> None:
        """Every few days a run does what has come to one partition."""
        for each in days:
            self.history.pass_days(each)
            self.history.produce(partition, 2)
            self.history.finish(self.history.start(*mode))

    @precondition(lambda self: self.history.alive)
    @rule(number=st.integers(0, 3), moment=MOMENT)
    def advance_to(self, number: int, moment: Moment) -> None:
        self.history.advance_to(self.alive(number), *moment)

    @precondition(lambda self: self.history.alive)
    @rule(steps=STEPS)
    def advance_all(self, steps: int) -> None:
        self.history.advance_all(10 * steps)

    @precondition(lambda self: self.history.alive)
    @rule(number=st.integers(0, 3), steps=STEPS)
    def advance(self, number: int, steps: int) -> None:
        self.history.advance(self.alive(number), steps)

    @precondition(lambda self: self.history.alive)
    @rule(number=st.integers(0, 3), rounds=st.integers(2, 5), steps=STEPS)
    def feed(self, number: int, rounds: int, steps: int) -> None:
        """Records come while a run is at work."""
        run = self.alive(number)
        for _ in range(rounds):
            self.history.produce_everywhere(2)
            self.history.advance(run, steps)

    @precondition(lambda self: self.history.alive)
    @rule(number=st.integers(0, 3))
    def finish(self, number: int) -> None:
        """A run ends: by itself, or one without an end by a stop."""
        run = self.alive(number)
        if run.stream.trigger_interval is not None:
            self.history.stop(run)
        self.history.finish(run)

    @precondition(lambda self: self.history.alive)
    @rule(number=st.integers(0, 3), how=st.sampled_from(BEFALLS))
    def befall(self, number: int, how: str) -> None:
        getattr(self.history, how)(self.alive(number))

    @precondition(lambda self: self.history.zombies)
    @rule(number=st.integers(0, 3), steps=STEPS)
    def wake(self, number: int, steps: int) -> None:
        zombies = self.history.zombies
        self.history.wake(zombies[number % len(zombies)], steps)

    @precondition(lambda self: self.history.alive)
    @rule(number=st.integers(0, 3), seconds=st.sampled_from(OUTAGES), steps=STEPS)
    def lose_brokers(self, number: int, seconds: float, steps: int) -> None:
        self.history.lose_brokers(self.alive(number), seconds, 10 * steps)

    @precondition(lambda self: self.history.alive)
    @rule(number=st.integers(0, 3), is_carried_out=st.booleans(), steps=STEPS)
    def lose_answer(self, number: int, is_carried_out: bool, steps: int) -> None:
        self.history.lose_answer(self.alive(number), steps, is_carried_out=is_carried_out)

    @rule(
        mode=st.sampled_from(EXACT_MODES),
        number=st.integers(0, 3),
        records=st.integers(1, 8),
        where=st.sampled_from(list(PLACES)),
        steps=STEPS,
    )
    def lose_markers(self, mode: Mode, number: int, records: int, where: str, steps: int) -> None:
        """A broker is restarted while a run is at work, which begins where there is none."""
        self.history.produce_everywhere(records)
        run = self.alive(number) if self.history.alive else self.history.start(*mode)
        self.history.lose_markers(run, where, 10 * steps)

    @precondition(lambda self: bool(self.history.runs))  # before, most of them change nothing
    @rule(what=st.sampled_from(CHANGES))
    def change(self, what: str) -> None:
        getattr(self.history, what)()

    @precondition(lambda self: bool(self.history.runs))
    @rule(days=st.sampled_from(DAYS))
    def pass_days(self, days: float) -> None:
        self.history.pass_days(days)

    @precondition(lambda self: self.history.is_under_way)
    @rule(partition=st.integers(0, 2), how=st.sampled_from(DISTURBANCES))
    def disturb(self, partition: int, how: float) -> None:
        """Somebody moves the group's progress by so many records, or retention removes such a share of the log."""
        if isinstance(how, int):
            self.history.move(partition, how)
        else:
            self.history.apply_retention(partition, how)

    def alive(self, number: int) -> Run:
        alive = self.history.alive
        return alive[number % len(alive)]

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "history"):
            self.history.check()

    def teardown(self) -> None:
        if not hasattr(self, "history"):
            return
        COUNTS["histories"] += 1
        history = self.history
        note(f"runs: {[(run.name, run.stream.delivery, run.name_of_end) for run in history.runs]}")
        history.heal()
        for _ in range(3):
            run = history.start(*history.last_mode)
            history.finish(run)
            if run.report is not None and run.report.error is None:
                history.conclude()
                return
            history.repair()
        raise Violation(f"the job does not go on: {run.report}")


Jobs.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=7,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    report_multiple_bugs=False,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)


LONG_FORM = [pytest.param(number, marks=pytest.mark.long) for number in range(14, 36)]


@pytest.mark.parametrize("number", [*range(14), *LONG_FORM])
def test_whatever_befalls_a_job_nothing_is_lost_or_doubled(number: int) -> None:
    """2,100 histories, in parts, each of which has a time-out of its own."""
    run_state_machine_as_test(seed(number)(type("Jobs", (Jobs,), {})), settings=Jobs.TestCase.settings)
