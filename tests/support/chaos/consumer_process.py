"""A member of the group, as a process: ``consumer_process.py ORDERS``, a JSON object. SIGTERM ends it in order.

It writes every handler's beginning and end into the journal. It dies with whoever holds the other end of its input.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from support.chaos.call_ledger import Journal
from wasmline.consumer import BatchResult, ConsumedRecord, ConsumerOptions, Output, ParallelConsumer, RetryPolicy
from wasmline.consumer.columns import ColumnResult, RecordColumns
from wasmline.control import DeploymentSpec
from wasmline.errors import HandlerBroken, TerminalFailure
from wasmline.offset_maps import codec
from wasmline.pipeline.transform_handler import ThreadHandler, TransformHandler
from wasmline.registry import digest_of
from wasmline.testing.guests import guest

POISON = b"\xff poison"
STUCK = b"stuck"
"""What the keys begin with whose records fail until the file ``unstuck`` is there."""


class Handler:
    """Takes up to ``sleep_ms`` for a record; ``failing`` percent of the records fail at first."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self._journal = Journal(Path(orders["journal"]))
        self._output = orders.get("output")
        self._sleep: float = orders.get("sleep_ms", 5) / 1_000
        self._failing = orders.get("failing", 0)
        self._unstuck = Path(orders["journal"]).with_name("unstuck")
        self._attempts = orders["options"].get("retry", {}).get("max_attempts")

    def one(self, record: ConsumedRecord) -> Output | None:
        self.note("S", record)
        time.sleep(self.seconds(record))
        return self._end(record)

    async def asynchronous(self, record: ConsumedRecord) -> Output | None:
        self.note("S", record)
        await asyncio.sleep(self.seconds(record))
        return self._end(record)

    def several(self, records: Sequence[ConsumedRecord]) -> list[Output]:
        outputs = [self.one(record) for record in records]
        return [output for output in outputs if output is not None]

    @property
    def wasm(self) -> Guests:
        assert self._output is not None
        return Guests(self, self._output)

    @property
    def columns(self) -> Guests:
        guests = self.wasm
        guests.takes_columns = True
        return guests

    def _end(self, record: ConsumedRecord) -> Output | None:
        try:
            self._work(record)
        except TerminalFailure:
            self.note("D", record)
            raise
        except Exception:
            self.note("D" if record.attempt == self._attempts else "F", record)
            raise
        self.note("E", record)
        if self._output is None:
            return None
        return Output(self._output, f"{record.partition}@{record.offset}".encode(), record.key)

    def _work(self, record: ConsumedRecord) -> None:
        if record.value == POISON:
            raise TerminalFailure("no such format")
        if (record.key or b"").startswith(STUCK) and not self._unstuck.exists():
            raise RuntimeError("no way")
        if record.attempt <= 2 and Random(record.partition << 40 | record.offset).randrange(100) < self._failing:
            raise RuntimeError("not this time")

    def seconds(self, record: ConsumedRecord) -> float:
        return self._sleep * Random(record.offset << 10 | record.partition).random()

    def note(self, kind: str, record: ConsumedRecord) -> None:
        self._journal.write(kind, record.partition, record.offset, record.key or b"")


class Guests:
    """A module that copies records into ``output``, with a guest in each thread, as ``Handler`` would."""

    takes_columns = False

    def __init__(self, handler: Handler, output: str) -> None:
        module = guest()
        spec = DeploymentSpec(
            name="copy", version="1.0.0", digest=digest_of(module), input_topic="any", output_topics=(output,)
        )
        self._handler = handler
        self._transform = TransformHandler(spec, module)

    def make(self) -> Noted:
        return Noted(self._handler, self._transform.make())


class Noted:
    """The guest of one thread."""

    def __init__(self, handler: Handler, guest: ThreadHandler) -> None:
        self._handler = handler
        self._guest = guest
        self.close = guest.close

    def __call__(self, records: Sequence[ConsumedRecord]) -> BatchResult:
        outcome = self._noted(records, self._guest)
        assert isinstance(outcome, BatchResult)
        return outcome

    def handle_columns(self, columns: RecordColumns) -> ColumnResult:
        outcome = self._noted(columns.records(), lambda _: self._guest.handle_columns(columns))
        assert isinstance(outcome, ColumnResult)
        return outcome

    def _noted(
        self,
        records: Sequence[ConsumedRecord],
        call: Callable[[Sequence[ConsumedRecord]], BatchResult | ColumnResult],
    ) -> BatchResult | ColumnResult:
        """Run them. For as long as the guest has them, the first of each key has begun."""
        firsts = {record.key: record for record in reversed(records)}
        for record in firsts.values():
            self._handler.note("S", record)
        time.sleep(self._handler.seconds(records[0]))
        outcome = call(records)
        if outcome.failures:
            raise HandlerBroken(f"a guest that copies has failed: {outcome.failures}")
        for record in records:
            if record is not firsts[record.key]:
                self._handler.note("S", record)
            self._handler.note("E", record)
        return outcome


def die_with_the_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def main() -> None:
    faulthandler.enable()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    orders = json.loads(sys.argv[1])
    if orders.get("ignores_maps"):  # the negative control
        codec.parse = lambda metadata, base: (base - 1, ())
    asked = orders["options"]
    asked["retry"] = RetryPolicy(**asked.get("retry", {}))
    consumer = ParallelConsumer(ConsumerOptions(**asked))
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop(drain=False))
    threading.Thread(target=die_with_the_parent, daemon=True).start()
    handler = Handler(json.loads(sys.argv[1]))
    consumer.run(getattr(handler, orders.get("handler", "one")))


if __name__ == "__main__":
    main()
