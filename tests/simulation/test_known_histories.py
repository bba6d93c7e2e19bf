"""Histories in which records were once lost or doubled without a word: today they are not, or a run ends with why."""

from __future__ import annotations

import pytest

from support.simulation import world
from support.simulation.bound_code import bound  # noqa: F401 - every test of this module uses it
from support.simulation.history import CONFIG, GROUP, INPUT, JOB, MODES, OUTPUT, History, Place, Run
from support.simulation.virtual import Process
from wasmline.consumer.backends.memory import MemoryTransactionalProducer
from wasmline.control import DriverClaim, JobTopic
from wasmline.control.control_topics import JOBS
from wasmline.documents import decode
from wasmline.job_offsets.progress_change import set_progress
from wasmline.offset_maps import encode
from wasmline.topic_partitions import CommittedOffset, TopicPartition
from wasmline.transactional_ids import shared_id

PLAIN = "microbatch", "at_least_once"
EXACT = "microbatch", "exactly_once"
LEASES = "parallel", "at_least_once"
EXACT_LEASES = "parallel", "exactly_once"


def run(history: History, mode: tuple[str, str], records: int = 3) -> None:
    history.produce(0, records)
    history.finish(history.start(*mode))


def test_a_switch_that_is_refused_does_not_change_where_the_job_goes_on() -> None:
    history = History(partitions=1)
    run(history, PLAIN)
    history.produce(0, 3)
    history.visit()
    history.move(0, 3)
    run(history, EXACT, 0)
    assert history.runs[-1].name_of_end == "GroupInUse"
    history.leave()
    run(history, PLAIN, 0)


@pytest.mark.parametrize("mode", [EXACT, LEASES, EXACT_LEASES], ids="-".join)
def test_a_run_that_is_paused_for_longer_than_offsets_are_kept_goes_on(mode: tuple[str, str]) -> None:
    history = History(partitions=2)
    history.produce(0, 3)
    run = history.start(*mode, is_endless=True)
    history.advance(run, 1_500)
    history.pause()
    for _ in range(20):
        history.advance(run, 300)
        history.pass_days(0.5)
    history.resume()
    history.produce_everywhere(2, slow=None)
    history.advance(run, 1_500)
    history.check()
    assert (run.name_of_end, history.missing()) == ("running", set())


@pytest.mark.parametrize("mode", [EXACT, LEASES, EXACT_LEASES], ids="-".join)
def test_a_partition_that_is_added_to_a_run_that_catches_up_is_part_of_that_or_of_the_next_one(
    mode: tuple[str, str],
) -> None:
    """Its group may have the beginning of that partition before the run has claimed it."""
    for steps in range(0, 200, 20):
        history = History(partitions=1)
        history.produce(0, 8, is_slow=True)
        run = history.start(*mode)
        history.advance_into_task(run, steps)
        history.add_partition()
        history.produce(1, 2)
        history.finish(run)
        assert run.name_of_end == "succeeded"
        history.finish(history.start(*mode))
        assert not history.missing()


@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_a_partition_that_is_added_while_a_run_starts_fails_nothing(mode: tuple[str, str]) -> None:
    for steps in range(0, 120, 3):
        history = History(partitions=1)
        history.produce(0, 3)
        run = history.start(*mode)
        history.advance(run, steps)
        history.add_partition()
        history.finish(run)
        assert run.name_of_end == "succeeded"


@pytest.mark.parametrize("mode", MODES, ids="-".join)
@pytest.mark.parametrize("following", MODES, ids="-".join)
def test_of_partitions_that_are_added_those_without_records_may_be_unknown_to_a_claim(
    mode: tuple[str, str], following: tuple[str, str]
) -> None:
    history = History(partitions=1)
    history.produce(0, 3)
    run = history.start(*mode, is_endless=True)
    history.advance(run, 1_500)
    for _ in range(2):
        history.add_partition()
    history.produce(2, 5)
    history.advance(run, 1_500)
    history.stop(run)
    history.finish(run)
    history.finish(history.start(*mode))
    history.produce(1, 2)
    for _ in range(2):
        last = history.start(*following)
        history.finish(last)
        assert last.name_of_end == "succeeded"
    assert not history.missing()


@pytest.mark.parametrize("mode", [LEASES, EXACT_LEASES], ids="-".join)
def test_progress_that_is_set_back_before_the_first_lease_of_a_checkpoint_that_goes_on_is_noticed(
    mode: tuple[str, str],
) -> None:
    """The round that the checkpoint has is older than the plan."""
    ends = set()
    for steps in range(80, 200, 5):
        history = History(partitions=1)
        for count in (3, 3):
            history.produce(0, count)
            history.finish(history.start(*mode))
        history.produce(0, 2)
        run = history.start(*mode, is_endless=True)
        history.advance(run, steps)
        if history.world.spark.executors.get(run.name):
            break
        if not run.claims:
            continue
        history.cluster.commit(GROUP, {TopicPartition(INPUT, 0): CommittedOffset(4)})
        history._note("lose")
        history.advance(run, 1_500)
        ends.add(run.name_of_end)
    assert ends == {"ProgressLost"}


@pytest.mark.parametrize("mode", [LEASES, EXACT_LEASES], ids="-".join)
def test_a_lease_lasts_no_longer_than_progress_is_kept_without_renewal(mode: tuple[str, str]) -> None:
    """A partition without records has nothing to commit while a lease lasts."""
    history = History(partitions=2)
    history.world.environment.retention_s = 60.0
    history.produce_everywhere(3, slow=None)
    run = history.start(*mode, is_endless=True)
    while history.runtime.seconds < 200:
        history.produce(0, 1)
        history.advance(run, 40)
        history.cluster.expire_offsets(60.0)
    assert TopicPartition(INPUT, 1) in history.cluster.committed(GROUP)
    assert run.name_of_end == "running"


@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_a_run_that_catches_up_ends_where_its_topic_is_recreated_and_has_no_records(mode: tuple[str, str]) -> None:
    ends = set()
    for steps in range(0, 150, 10):
        history = History(partitions=1)
        history.produce(0, 3)
        run = history.start(*mode)
        history.advance(run, steps)
        history.recreate_topic()
        history.finish(run)
        ends.add(run.name_of_end)
    assert ends <= {"InvalidJob", "succeeded", "JobFailed"}
    assert "InvalidJob" in ends


@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_a_topic_that_is_recreated_while_a_run_is_planned_was_not_truncated(mode: tuple[str, str]) -> None:
    ends = set()
    for steps in range(0, 90, 2):
        history = History(partitions=1)
        history.produce(0, 5)
        history.finish(history.start(*mode))
        run = history.start(*mode)
        history.advance(run, steps)
        history.recreate_topic()
        history.finish(run)
        ends.add(run.name_of_end)
    assert "InvalidJob" in ends
    assert "OffsetOutOfRange" not in ends


def test_leases_that_catch_up_end_where_markers_are_lost_and_the_topic_is_recreated() -> None:
    history = History(partitions=1)
    history.produce(0, 1)
    run = history.start(*EXACT_LEASES)
    history.lose_markers(run, "everywhere", 130)
    history.recreate_topic()
    history.finish(run)
    assert run.name_of_end == "InvalidJob"


@pytest.mark.parametrize("mode", [LEASES, EXACT_LEASES], ids="-".join)
def test_a_run_that_catches_up_ends_where_a_log_was_truncated(mode: tuple[str, str]) -> None:
    """It has all that is there."""
    ends = set()
    for steps in range(0, 150, 10):
        history = History(partitions=1)
        history.produce(0, 5)
        run = history.start(*mode)
        history.advance(run, steps)
        history.truncate(0, 3)
        history.finish(run)
        ends.add(run.name_of_end)
    assert ends == {"succeeded"}


@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_a_log_that_was_truncated_below_the_progress_is_not_one_that_is_read_to_its_end(mode: tuple[str, str]) -> None:
    history = History(partitions=1)
    history.produce(0, 5)
    history.finish(history.start(*mode))
    history.truncate(0, 3)
    refused = history.start(*mode)
    history.finish(refused)
    assert refused.report is not None
    assert refused.name_of_end == "OffsetOutOfRange"
    assert "in-0 was truncated: it does not have offset 5" in refused.report.message
    history._goes_on_after_loss = True
    history.finish(history.start(*mode))
    history.produce(0, 3)
    history.finish(history.start(*mode))
    assert [history.times(Place(0, offset, 0)) for offset in range(6)] == [1, 1, 1, 2, 2, 1]


@pytest.mark.parametrize("mode", [EXACT, EXACT_LEASES], ids="-".join)
def test_a_map_of_records_that_the_log_does_not_have_is_not_used(mode: tuple[str, str]) -> None:
    """A lease had 3 to 11 done, and the log was truncated at 5 and written anew up to 7."""
    history = History(partitions=1)
    history.produce(0, 2)
    history.finish(history.start(*EXACT_LEASES))
    place = TopicPartition(INPUT, 0)
    history.produce(0, 10)
    history.cluster.commit(GROUP, {place: CommittedOffset(2, encode(2, 11, [2]))})
    history.truncate(0, 5)
    history.produce(0, 3)
    refused = history.start(*mode)
    history.finish(refused)
    assert refused.name_of_end == "OffsetOutOfRange"
    assert history.cluster.committed(GROUP)[place].offset == 2


@pytest.mark.parametrize("between", [None, PLAIN, EXACT], ids=str)
def test_a_task_is_fenced_whatever_has_run_on_other_topics_since(between: tuple[str, str] | None) -> None:
    """A run at least once follows one exactly once, of which a task stands still with its transaction open."""
    history = History(partitions=1)
    history.cluster.create("other", 1)
    history.produce(0, 5)
    older = history.start(*EXACT)
    history.advance_into_task(older, 0)
    history.advance_to(older, "write")
    history.freeze_worker(older)
    history.crash(older)
    if between is not None:
        due, history.due = history.due, set()
        history.redeploy("other")
        history.finish(history.start(*between))
        history.redeploy()
        history.due = due
    newer = history.start(*PLAIN, is_endless=True)
    history.advance(newer, 1_200)
    history.wake(history.zombies[0], 400)
    history.check()
    assert [history.times(Place(0, offset, 0)) for offset in range(5)] == [1] * 5


def test_a_run_that_is_refused_because_of_a_visitor_takes_no_job_over_that_others_did_on_a_topic_before() -> None:
    history = History(partitions=1)
    history.produce(0, 3)
    older = history.start(*EXACT, is_endless=True)
    history.advance(older, 1_500)
    history.crash(older)
    history.recreate_topic()
    history.produce(0, 3)
    history.visit()
    before = history._last_claim()
    refused = history.start(*PLAIN)
    history.finish(refused)
    assert (refused.name_of_end, history._last_claim()) == ("GroupInUse", before)


def test_a_run_at_least_once_does_not_begin_anew_where_the_group_forgot_what_was_done_exactly_once() -> None:
    history = History(partitions=1, starting="latest")
    run(history, EXACT, 0)
    run(history, EXACT)
    history.forget_group()
    run(history, PLAIN)


def test_a_checkpoint_that_is_lost_is_not_a_new_beginning() -> None:
    history = History(partitions=1, starting="latest")
    run(history, PLAIN, 0)
    run(history, PLAIN)
    history.lose_checkpoints()
    run(history, PLAIN)


def test_a_driver_that_was_replaced_is_fenced_and_does_not_take_the_newer_ones_work_for_a_strangers() -> None:
    ends = set()
    for steps in range(0, 60, 2):
        history = History(partitions=1)
        history.produce(0, 3)
        older = history.start(*EXACT, is_endless=True)
        history.advance(older, 600)
        history.produce(0, 3)
        history.advance(older, steps)
        run(history, PLAIN)
        history.finish(older)
        ends.add(older.name_of_end)
    assert ends == {"Fenced", "stopped"}


def test_a_task_of_the_driver_before_is_no_stranger_who_moves_progress() -> None:
    """It took its transactional id after the newer driver had fenced it, and before a task of that one did."""
    history = History(partitions=2)
    runs = []
    for _ in range(2):
        history.produce(0, 4)
        history.produce(1, 4)
        runs.append(history.start(*EXACT))
        history.advance_into_task(runs[-1], 0)
        history.lose_worker(runs[-1])
    for each in runs:
        history.finish(each)
    assert [each.name_of_end for each in runs] == ["Fenced", "succeeded"]


def test_the_first_run_of_a_release_with_another_number_of_virtual_shards_begins() -> None:
    history = History(partitions=3)
    history.change_release()
    run(history, EXACT)
    assert history.runs[-1].name_of_end == "succeeded"
    history.change_release()
    run(history, EXACT)
    assert history.runs[-1].name_of_end == "InvalidJob"


@pytest.mark.parametrize("mode", [PLAIN, EXACT, LEASES, EXACT_LEASES], ids="-".join)
def test_the_takeover_of_a_first_run_says_what_that_run_is(mode: tuple[str, str]) -> None:
    history = History(partitions=1)
    first = history.start(*mode)
    history.advance_to(first, "claim")
    while not (claims := [each for each in history.cluster.records(JOBS) if each.key == f"{JOB}/batch".encode()]):
        history.advance(first, 1)
    claim = decode(DriverClaim, claims[0].value or b"")
    assert (claim.run, claim.mode, claim.delivery, claim.checkpoint) == (first.name, *mode, "")


def test_partitions_of_one_virtual_shard_are_written_in_one_transaction() -> None:
    history = History(partitions=3)
    history.change_release()
    for partition in range(3):
        history.produce(partition, 1)
    run(history, EXACT, 0)
    assert history.runs[-1].name_of_end == "succeeded"


@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_a_topic_that_is_made_anew_while_a_batch_reads_it_is_named(mode: tuple[str, str]) -> None:
    """Not by what becomes of it: progress that is gone with the topic, or records that Spark finds missing."""
    ends = set()
    for steps in range(0, 60, 3):
        history = History(partitions=2)
        history.produce(0, 3)
        reading = history.start(*mode)
        history.advance_into_task(reading, steps)
        if reading.is_over:
            break
        history.recreate_topic()
        history.finish(reading)
        ends.add(reading.name_of_end)
    assert "InvalidJob" in ends
    assert ends <= {"InvalidJob", "succeeded"}


@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_a_topic_that_is_recreated_while_a_run_is_planned_is_named(mode: tuple[str, str]) -> None:
    """Not as progress that somebody has moved: the group's offsets went with the topic."""
    ends = set()
    for steps in range(60):
        history = History(partitions=2)
        run(history, ("parallel", "exactly_once"))
        planned = history.start(*mode)
        history.advance(planned, steps)
        if planned.has_begun:
            break
        history.recreate_topic()
        history.finish(planned)
        ends.add(planned.name_of_end)
    assert ends == {"InvalidJob", "succeeded"}


@pytest.mark.parametrize("steps", [0, 8])
def test_a_task_of_the_run_before_the_last_is_no_stranger_who_moves_progress(steps: int) -> None:
    """It is tried again after the last run has fenced it, and ends a smaller batch than the last run's."""
    history = History(partitions=1)
    runs = []
    for _ in range(2):
        history.produce(0, 1)
        runs.append(history.start(*EXACT))
        history.advance_into_task(runs[-1], 0)
        if not runs[1:]:
            history.lose_worker(runs[0])
    history.advance(runs[1], steps)
    history.crash(runs[1])
    history.finish(runs[0])
    run(history, EXACT, 0)
    assert [each.name_of_end for each in runs] == ["Fenced", "killed"]
    assert history.runs[-1].name_of_end == "succeeded"


def test_a_task_of_the_run_before_is_no_stranger_after_a_batch_has_fenced_it_either() -> None:
    """It is tried again between two batches of the newer run, the first of which did less of its partition."""
    ends = set()
    for steps in range(0, 12, 4):
        history = History(partitions=2)
        history.produce(1, 5)
        older = history.start(*EXACT)
        history.advance_into_task(older, 0)
        history.produce(0, 3)
        newer = history.start(*EXACT)
        history.advance_to(newer, "done")
        history.advance(newer, steps)
        history.advance(older, 400)
        history.finish(newer)
        ends.add(newer.name_of_end)
        assert not history.missing()
    assert ends == {"succeeded"}


def test_a_task_of_the_run_before_is_no_stranger_who_moves_progress_between_two_leases() -> None:
    """Its driver stands still, so that nothing but the claim tells of it; the first lease ends before all is done."""
    history = History(partitions=1)
    history.produce(0, 5, is_slow=True)
    older = history.start(*EXACT)
    history.advance_into_task(older, 0)
    newer = history.start(*EXACT_LEASES)
    history.advance_into_task(newer, 40)
    history.redeploy()
    while history.world.spark.executors[newer.name]:
        history.advance(newer, 1)
    progress, partition = history.cluster.group(GROUP).committed, TopicPartition(INPUT, 0)
    assert progress[partition].offset == 3
    history.freeze_or_thaw_driver(older)
    history.advance(older, 400)
    assert progress[partition].offset == 5
    history.finish(newer)
    assert newer.name_of_end == "succeeded"


@pytest.mark.parametrize("times", range(1, 8))
def test_a_driver_that_stood_still_at_its_start_does_not_set_back_what_a_newer_one_did(times: int) -> None:
    history = History(partitions=2)
    history.produce(0, 3)
    held = history.start(*EXACT)
    history.advance_to(held, "fence", times)
    run(history, LEASES)
    history.finish(held)
    run(history, LEASES)
    assert [each.name_of_end for each in history.runs[1:]] == ["succeeded", "succeeded"]


@pytest.mark.parametrize("steps", range(0, 16, 2))
def test_orders_that_are_given_at_the_same_moment_are_both_given(steps: int) -> None:
    """A run in parallel mode that ends stops itself, so that no lease follows, while the next one is ordered."""
    history = History(partitions=1)
    run(history, LEASES)
    stopping = history.runtime.spawn(lambda: JobTopic(CONFIG).stop(JOB, "r0"), Process("r0", "r0/stopping"))
    history.runtime.advance(["r0"], steps)
    following = history.start(*LEASES)
    history.runtime.advance(["r0"], 500)
    assert (stopping.is_done, stopping.error) == (True, None)
    history.finish(following)
    assert following.name_of_end == "succeeded"


@pytest.mark.parametrize("mode", [PLAIN, EXACT, LEASES], ids="-".join)
@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_run_that_stood_still_before_its_first_claim_does_not_take_the_job_from_the_next(
    mode: tuple[str, str], times: int
) -> None:
    history = History(partitions=1)
    history.produce(0, 6)
    older = history.start(*mode)
    history.advance_to(older, "fence", times)
    newer = history.start(*EXACT)
    history.advance_to(newer, "fence", 3)
    history.advance(older, 100)
    history.finish(newer)
    history.finish(older)
    assert newer.name_of_end == "succeeded"


@pytest.mark.parametrize("mode", [EXACT, EXACT_LEASES, LEASES], ids="-".join)
def test_a_first_run_that_was_killed_at_its_start_does_not_set_the_next_one_back(mode: tuple[str, str]) -> None:
    """It had committed the first offsets of some partitions; the others were read from their beginning."""
    for steps in range(0, 400, 3):
        history = History(partitions=3, starting="latest")
        for partition in history.partitions:
            history.produce(partition, 2)
        starting = history.start(*mode)
        history.advance(starting, steps)
        if starting.is_over:
            break
        history.crash(starting)
        history.finish(history.start(*mode))
        assert history.runs[-1].name_of_end == "succeeded"
        assert not any(history.times(Place(partition, 0, 0)) for partition in history.partitions), steps
    assert starting.is_over


def test_a_run_that_an_older_one_fences_at_its_start_begins_anew() -> None:
    history = History(partitions=1)
    run(history, EXACT)
    history.produce(0, 1)
    older = history.start(*EXACT)
    history.advance_to(older, "fence", 3)
    newer = history.start(*EXACT)
    history.advance_to(newer, "send", 2)
    history.advance_to(older, "fence", 1)
    history.finish(newer)
    assert newer.name_of_end == "succeeded"


@pytest.mark.parametrize("mode", [PLAIN, EXACT], ids="-".join)
def test_brokers_that_are_away_for_less_than_a_client_waits_end_no_batch(mode: tuple[str, str]) -> None:
    """Whatever a batch is about to do, also where the driver gives a single request less time."""
    ends = set()
    for steps in range(4, 24, 4):
        history = History(partitions=1)
        history._goes_on_after_loss = True  # what is lost is counted after the tasks
        history.produce(0, 3)
        reading = history.start(*mode, is_endless=True)
        history.advance_to(reading, "done")
        history.advance(reading, 50)
        history.produce(0, 3)
        history.advance_to(reading, "plan")
        history.advance(reading, steps)
        history.lose_brokers(reading, 25, 700)
        history.advance(reading, 300)
        history.stop(reading)
        history.finish(reading)
        ends.add(reading.name_of_end)
        assert not history.missing()
    assert ends == {"stopped"}


def test_a_visitor_who_comes_while_a_run_starts_is_named() -> None:
    ends = set()
    for steps in range(0, 160, 4):
        history = History(partitions=1)
        history.produce(0, 3)
        starting = history.start(*LEASES)
        history.advance(starting, steps)
        if starting.has_begun:
            break
        history.visit()
        history.finish(starting)
        ends.add(starting.name_of_end)
    assert ends == {"GroupInUse"}


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "stays"])
def test_what_leases_do_beside_a_visitor_is_committed_once_he_leaves_or_done_again(leaves: bool) -> None:
    history = History(partitions=1)
    history.produce(0, 7)
    visited = history.start(*LEASES, is_endless=True)
    history.advance_into_task(visited, 0)
    before = dict(history.cluster.group(GROUP).committed)
    history.visit()
    while history.missing():
        history.advance(visited, 1)
        history.check()
    assert visited.lacks_commits
    assert history.cluster.group(GROUP).committed == before
    if leaves:
        history.leave()
    history.stop(visited)
    history.finish(visited)
    history.leave()
    history.finish(history.start(*LEASES))
    assert [run.name_of_end for run in history.runs] == ["stopped", "succeeded"]
    history.check()
    repeated = {place.offset for place in history.due if history.times(place) > 1}
    assert not repeated if leaves else repeated


@pytest.mark.parametrize("times", range(1, 8))
@pytest.mark.parametrize("is_alone", [True, False])
def test_a_task_that_stood_still_while_the_next_run_worked_commits_nothing(times: int, is_alone: bool) -> None:
    """It, or the whole run with its driver, stood still before a commit at least once."""
    history = History(partitions=1)
    history.produce(0, 12, is_slow=True)
    older = history.start(*LEASES)
    history.advance_into_task(older, 0)
    history.advance_to(older, "commit", times)
    if is_alone:
        history.freeze_worker(older)
    run(history, LEASES, 0)
    for zombie in history.zombies:
        history.wake(zombie, 1_500)
    history.advance(older, 1_500)
    history.check()


def test_a_task_that_is_cut_off_ends_its_run_at_least_once_and_loses_nothing() -> None:
    """What it commits as the next lease is at work, nobody can tell from progress that somebody moves."""
    history = History(partitions=1)
    history.produce(0, 12, is_slow=True)
    leases = history.start(*LEASES)
    history.advance_into_task(leases, 25)
    history.freeze_worker(leases)
    history.advance(leases, 60)
    history.redeploy()
    for _ in range(12):
        history.wake(history.zombies[0], 12)
        history.advance(leases, 60)
    history.finish(leases)
    assert leases.name_of_end == "ProgressLost"
    history.repair()
    run(history, LEASES, 0)
    assert history.runs[-1].name_of_end == "succeeded"
    assert not history.missing()


def leave_a_map(history: History) -> CommittedOffset:
    """Let a lease do some of twelve records out of order, and kill it; return what it has committed."""
    history.produce(0, 12, is_slow=True)
    leases = history.start(*EXACT_LEASES)
    progress, partition = history.cluster.group(GROUP).committed, TopicPartition(INPUT, 0)
    while partition not in progress or not progress[partition].metadata:
        assert not leases.is_over
        history.advance(leases, 1)
    history.crash(leases)
    return progress[partition]


def test_micro_batches_at_least_once_repeat_what_leases_had_done_above_their_offset() -> None:
    history = History(partitions=1)
    leave_a_map(history)
    run(history, PLAIN, 0)
    assert {history.times(Place(0, offset, 0)) for offset in range(12)} == {1, 2}


@pytest.mark.parametrize("mode", [EXACT, EXACT_LEASES, LEASES], ids="-".join)
def test_an_offset_map_of_a_topic_that_was_made_anew_leaves_nothing_of_the_new_one_out(mode: tuple[str, str]) -> None:
    history = History(partitions=1)
    left = leave_a_map(history)
    history.recreate_topic()
    history.cluster.group(GROUP).record({TopicPartition(INPUT, 0): left})
    run(history, mode, 12)
    assert left.offset == 0
    assert not history.missing()


def test_a_driver_that_sleeps_before_its_first_lease_does_not_begin_anew_where_the_group_forgot() -> None:
    """Its plan had found the progress, which expired while it slept."""
    history = History(partitions=2)
    run(history, EXACT)
    history.produce(1, 3)
    sleeper = history.start(*EXACT_LEASES)
    history.advance_to(sleeper, "claim", 2)
    history.pass_days(8)
    history.finish(sleeper)
    assert sleeper.name_of_end == "ProgressLost"


def test_a_lease_that_lost_its_producer_does_not_take_the_partition_back_from_a_newer_driver() -> None:
    """It replaced the producer after a commit without an answer, and found its progress as it had left it."""
    history = History(partitions=2)
    history.produce_everywhere(7, slow=None)
    older = history.start("parallel", "exactly_once", is_endless=True)
    history.advance_to(older, "commit", 4)
    history.produce_everywhere(6, slow=None)
    between = history.start(*PLAIN, is_endless=True)
    history.advance_all(80)
    history.advance_to(between, "write", 1)
    history.produce_everywhere(3, slow=None)
    newer = history.start(*EXACT, is_endless=True)
    history.advance_to(newer, "done", 1)
    history.advance(older, 144)
    history.heal()
    run(history, PLAIN)
    assert history.runs[-1].name_of_end == "succeeded"


def test_leases_at_least_once_end_the_transaction_that_a_replaced_task_began_after_their_run() -> None:
    history = History(partitions=1)
    for moments in (("plan", 1), ("claim", 2), ("commit", 4)), (("fence", 4), ("fence", 3), ("commit", 1)):
        history.produce(0, 5)
        older = history.start(*EXACT)
        history.advance_to(older, *moments[0])
        history.produce(0, 1)
        newer = history.start(*LEASES)
        history.advance_to(newer, *moments[1])
        history.advance_to(older, *moments[2])
        history.finish(newer)
        assert newer.name_of_end == "succeeded"


@pytest.mark.parametrize("mode", [PLAIN, EXACT, LEASES], ids=" ".join)
def test_a_run_waits_for_the_batch_of_the_one_before_however_long_that_takes(
    mode: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "SLOW_S", 200.0)
    history = History(partitions=1)
    history.produce(0, 3, is_slow=True)
    older = history.start(*mode, is_endless=True)
    history.advance_into_task(older, 3)
    newer = history.start(*mode)
    while not newer.is_over:
        history.advance_all(200)
    assert history.runtime.seconds > 200
    assert [older.name_of_end, newer.name_of_end] == ["stopped", "succeeded"]


@pytest.mark.parametrize("mode", [EXACT, EXACT_LEASES], ids=" ".join)
@pytest.mark.parametrize("moment", ["send", "commit"])
def test_a_task_that_wakes_with_its_transaction_open_commits_nothing(mode: tuple[str, str], moment: str) -> None:
    history = History(partitions=1)
    history.produce(0, 3)
    older = history.start(*mode)
    history.advance_into_task(older, 0)
    history.advance_to(older, moment)
    history.freeze_worker(older)
    [zombie] = history.zombies
    history.finish(older)
    written = history.cluster.records(OUTPUT)
    assert len(written) == 3
    history.wake(zombie, 1_000)
    history.check()
    assert history.cluster.records(OUTPUT) == written


def overtake(
    history: History,
    modes: tuple[tuple[str, str], tuple[str, str]],
    records: int,
    *moments: tuple[str, int],
    is_endless: bool = False,
) -> None:
    """A run is held, and so is the next one; then the first goes on before the second one does. Partition 0 is slow."""
    runs: list[Run] = []
    for mode, count, moment in ((modes[0], records, moments[0]), (modes[1], 1, moments[1])):
        for partition in history.partitions:
            history.produce(partition, count, is_slow=not partition)
        runs.append(history.start(*mode, is_endless=is_endless and not runs))
        history.advance_to(runs[-1], *moment)
    history.advance_to(runs[0], *moments[2])
    history.finish(runs[1])


def test_a_run_ends_where_a_task_of_the_run_before_sets_its_progress_back_after_it_had_caught_up() -> None:
    history = History(partitions=2)
    for _ in range(3):
        overtake(history, (EXACT, EXACT), 1, ("fence", 1), ("fence", 1), ("fence", 1))
    overtake(history, (LEASES, LEASES), 4, ("commit", 4), ("fence", 3), ("fence", 1))
    assert history.runs[-1].name_of_end == "ProgressLost"


def test_an_older_driver_that_stands_still_in_a_transaction_does_not_hold_up_leases_of_a_newer_one() -> None:
    history = History(partitions=3, starting="latest", takes_columns=True)
    exact_leases = "parallel", "exactly_once"
    overtake(history, (exact_leases, exact_leases), 6, ("read", 4), ("commit", 1), ("claim", 1))
    history.produce(2, 1, is_slow=True)
    overtake(history, (PLAIN, exact_leases), 5, ("fence", 2), ("done", 2), ("commit", 3), is_endless=True)
    assert history.runs[-1].name_of_end == "succeeded"


def test_a_transaction_of_an_older_task_does_not_hold_up_micro_batches_of_a_newer_run() -> None:
    history = History(partitions=2)
    run(history, EXACT)
    history.produce_everywhere(2, slow=None)
    older = history.start(*EXACT)
    history.advance_into_task(older, 0)
    history.advance_to(older, "fence", 2)
    history.produce_everywhere(2, slow=None)
    newer = history.start(*EXACT)
    history.advance_to(newer, "claim", 1)
    while not newer.has_begun:
        history.advance(newer, 1)
    before = dict(history.cluster.group(GROUP).committed)
    while history.cluster.group(GROUP).committed == before:
        history.advance(older, 1)  # one task commits what it may still commit, and the other stands still
    history.finish(newer)
    assert newer.name_of_end == "succeeded"
    assert history.runtime.seconds < 60


@pytest.mark.parametrize("steps", [48, 56, 64])
@pytest.mark.parametrize("mode", [EXACT, EXACT_LEASES], ids=" ".join)
def test_a_driver_that_renews_while_it_is_replaced_does_not_hold_up_the_start_of_the_next(
    mode: tuple[str, str], steps: int
) -> None:
    history = History(partitions=2)
    history.produce_everywhere(3, slow=None)
    history.finish(history.start(*LEASES))
    history.produce_everywhere(3, slow=None)
    older = history.start(*mode)
    history.advance_to(older, "fence", 3)
    history.produce_everywhere(1, slow=None)
    newer = history.start(*LEASES)
    history.advance(newer, steps)
    history.advance_to(older, "commit")
    history.finish(newer)
    assert newer.name_of_end == "succeeded"


def test_progress_is_set_though_an_older_task_stands_still_in_a_transaction() -> None:
    history = History(partitions=2)
    for mode in (EXACT, LEASES):
        history.produce_everywhere(3, slow=None)
        history.finish(history.start(*mode))
    partition = TopicPartition(INPUT, 1)
    held = MemoryTransactionalProducer(history.cluster, shared_id(f"wasmline.stream.{JOB}", partition), timeout_s=900)
    held.send_offsets(GROUP, {partition: CommittedOffset(6)})
    changed = set_progress(CONFIG, JOB, lambda found: {1: found.offsets[1] - 1})
    assert changed.committed == {0: 6, 1: 5}


@pytest.mark.parametrize("steps", range(60))
def test_a_run_that_stood_still_while_the_next_one_began_an_added_partition_is_fenced_at_most(steps: int) -> None:
    history = History(partitions=1)
    older = history.start(*EXACT)
    history.produce_everywhere(6)
    history.advance(older, steps)
    history.add_partition()
    history.produce_everywhere(1)
    newer = history.start(*EXACT)
    history.advance_into_task(newer, 0)
    history.crash(newer)
    history.finish(older)
    assert older.name_of_end in ("Fenced", "stopped", "succeeded")
