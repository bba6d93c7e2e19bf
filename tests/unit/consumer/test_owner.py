"""What the owner's thread does in one turn after the other, with handlers that do not return."""

from collections.abc import Sequence
from queue import SimpleQueue

import pytest

from wasmline.consumer import ConsumerOptions, Output, owner
from wasmline.consumer.memory import MemoryBackend, MemoryCluster
from wasmline.consumer.work import Batch

RECORDS = 3_000
OPTIONS = ConsumerOptions(topics=("in",), group_id="g", max_concurrency=2)


class Busy:
    """An engine whose handlers are at work."""

    workers, room = 2, 4

    def submit(self, batches: Sequence[Batch]) -> None:
        pass

    def close(self, timeout: float) -> int:
        return 0


@pytest.mark.parametrize(("keys", "expected"), [(1, RECORDS), (100, owner.ENOUGH)])
def test_it_reads_on_without_a_pause_while_its_keys_are_too_few_for_its_workers(
    monkeypatch: pytest.MonkeyPatch, keys: int, expected: int
) -> None:
    monkeypatch.setattr(owner, "LOOK", 3_600.0)
    cluster, mailbox = MemoryCluster(), SimpleQueue[Batch | None]()
    cluster.create("in")
    for number in range(RECORDS):
        cluster.write(Output("in", b"", key=b"%d" % (number % keys)))
    backend = MemoryBackend(cluster, OPTIONS)
    ours = owner.Owner(OPTIONS, backend, Busy(), mailbox)
    backend.source.open(ours)
    for _ in range(RECORDS // owner.SIP):
        mailbox.put(None)  # it does not wait for a result
        ours.turn()
    read = ours.work.queued + ours.work.out
    assert expected <= read < expected + 2 * owner.SIP
