from wasmline.consumer.records import ConsumedRecord
from wasmline.consumer.state.shards import Shard, Shards

FAULT = OSError("refused")


def record(offset: int, key: bytes = b"a") -> ConsumedRecord:
    return ConsumedRecord("orders", 0, offset, key, b"")


def shards(*records: ConsumedRecord) -> Shards:
    queues = Shards()
    for each in records:
        queues.add(each.key, each)
    return queues


def runs(
    queues: Shards, limit: int = 1, now: float = 0.0, below: int | None = None
) -> list[tuple[Shard, list[ConsumedRecord]]]:
    locked, records = queues.take(limit, now, below)
    found = [(shard, [each for each in records if each.key == shard.key]) for shard in locked]
    assert records == [each for _, run in found for each in run], "shard by shard"
    assert all(shard.in_flight == len(run) for shard, run in found)
    return found


def taken(queues: Shards, limit: int = 1, now: float = 0.0, below: int | None = None) -> list[list[int]]:
    return [[each.offset for each in run] for _, run in runs(queues, limit, now, below)]


def test_a_key_has_one_run_out_at_a_time() -> None:
    queues = shards(record(0), record(1))
    ((shard, run),) = runs(queues)
    assert [each.offset for each in run] == [0]
    assert taken(queues) == []
    queues.unlock(shard)
    assert taken(queues) == [[1]]


def test_keys_are_served_in_turn() -> None:
    queues = shards(record(0, b"a"), record(1, b"a"), record(2, b"b"))
    ((shard, _),) = runs(queues)
    queues.unlock(shard)
    assert taken(queues) == [[2]]
    assert taken(queues) == [[1]]


def test_a_batch_holds_runs_of_several_keys_up_to_its_limit() -> None:
    queues = shards(record(0, b"a"), record(1, b"b"), record(2, b"a"), record(3, b"b"), record(4, b"c"))
    assert taken(queues, 3) == [[0, 2], [1]]
    assert taken(queues, 3) == [[4]]
    assert queues.size == 1


def test_what_is_put_back_comes_first_in_its_order_once_it_is_due() -> None:
    queues = shards(*map(record, range(4)))
    ((shard, run),) = runs(queues, 3)
    queues.requeue_failed(shard, run[1:], due=2.0, error=FAULT)
    assert (queues.size, queues.due) == (3, 2.0)
    assert taken(queues, 9, now=1.9) == []
    assert taken(queues, 9, now=2.0) == [[1, 2, 3]]
    assert queues.due is None


def test_a_record_that_arrives_while_its_key_rests_waits_too() -> None:
    queues = shards(record(0))
    ((shard, run),) = runs(queues)
    queues.requeue_failed(shard, run, due=5.0, error=FAULT)
    queues.add(b"a", record(1))
    assert taken(queues) == []
    assert taken(queues, 2, now=5.0) == [[0, 1]]


def test_a_key_that_rests_holds_up_no_other() -> None:
    queues = shards(record(0, b"a"), record(1, b"b"))
    ((shard, run),) = runs(queues)
    queues.requeue_failed(shard, run, due=5.0, error=FAULT)
    assert taken(queues) == [[1]]


def test_a_key_without_records_is_forgotten() -> None:
    queues = shards(record(0))
    ((shard, _),) = runs(queues)
    assert len(queues) == 1
    queues.unlock(shard)
    assert len(queues) == 0


def test_a_key_that_comes_after_another_has_nothing_of_it() -> None:
    queues = shards(record(0, b"x"), record(1, b"x"))
    ((shard, run),) = runs(queues)
    queues.requeue_failed(shard, run, due=0.0, error=FAULT)
    while batch := runs(queues):
        queues.unlock(batch[0][0])
    queues.add(b"y", record(2, b"y"))
    (again,) = queues
    assert again is shard
    assert (again.key, again.in_flight, again.alone) == (b"y", 0, 0)
    assert (again.head, again.error, len(again.records)) == (None, None, 1)


def test_suspects_go_out_one_by_one_and_with_nobody_else() -> None:
    queues = shards(record(0, b"x"), *map(record, range(1, 4)), record(9, b"b"))
    ((_, _), (shard, run)) = runs(queues, 3)
    shard.alone = len(run)
    queues.requeue_failed(shard, run, due=0.0, error=FAULT)
    found = []
    while batch := runs(queues, 9):
        found.append([each.offset for _, run in batch for each in run])
        for locked, _ in batch:
            queues.unlock(locked)
    assert found == [[9], [1], [2], [3]]


def test_of_a_blocked_partition_only_what_lies_below_runs() -> None:
    queues = shards(record(3, b"a"), record(4, b"b"), record(7, b"b"), record(8, b"c"))
    assert taken(queues, 9, below=7) == [[3], [4]]
    assert taken(queues, 9, below=7) == []
    assert taken(queues, 9, below=9) == [[8]]


def test_a_record_that_is_read_below_runs_in_a_partition_that_found_nothing_before() -> None:
    queues = shards(record(8, b"c"))
    assert taken(queues, below=7) == []
    queues.add(b"d", record(6, b"d"))
    assert taken(queues, below=7) == [[6]]


def test_a_lock_outlives_assignments_until_its_run_is_back() -> None:
    queues = shards(record(0, b"a"), record(1, b"b"))
    ((shard, _),) = runs(queues)
    third = queues.successor().successor()
    third.add(b"a", record(0, b"a"))
    third.add(b"b", record(1, b"b"))
    assert third.size == 2
    assert taken(third, 9) == [[1]]
    third.unlock(shard)
    assert taken(third, 9) == [[0]]
