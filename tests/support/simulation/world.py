"""Everything that a history of jobs happens in: the cluster, Spark, time, and our code bound to them."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
import time
import uuid
from collections.abc import Iterator, MutableMapping
from concurrent import futures
from contextlib import nullcontext
from functools import partial
from queue import SimpleQueue
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import confluent_kafka
import pyarrow as pa
import pyspark
import pytest
from confluent_kafka import admin

import wasmline.consumer
import wasmline.control
import wasmline.job_offsets
import wasmline.kafka
import wasmline.leases
import wasmline.pipeline
import wasmline.spark
import wasmline.wasm
from support.simulation.clients import (
    Client,
    Environment,
    MemoryAdmin,
    MemoryConsumer,
    MemoryOffsetStore,
    MemoryProducer,
)
from support.simulation.spark_model import SLOTS, Checkpoint, Cluster, Spark
from support.simulation.transaction_requests import MemoryTransactionRequests, decisions
from support.simulation.virtual import Future, Queue, Runtime, Threading, Time
from wasmline.consumer import ParallelConsumer
from wasmline.consumer.backends.memory import MemoryCluster
from wasmline.consumer.timings import Timings
from wasmline.job_specs import StreamSpec
from wasmline.kafka import committed_offset_store, reconnecting_clients, transaction_log
from wasmline.kafka.transaction_requests import TransactionRequests
from wasmline.record_batches import OUTPUT_SCHEMA
from wasmline.wasm import TransformResult, TransformRuntime

PACKAGES = (
    wasmline.consumer,
    wasmline.control,
    wasmline.job_offsets,
    wasmline.kafka,
    wasmline.leases,
    wasmline.pipeline,
    wasmline.spark,
)

WATCHED_BY_A_REAL_THREAD = ("wasmline.kafka.librdkafka_ctypes", "wasmline.kafka.reconnecting_clients")
"""Modules in which a thread looks after real clients, those of earlier tests of this process."""


class OffsetsOnlyStore(MemoryOffsetStore):
    keeps_metadata = False


class ByProcess(MutableMapping[Any, Any]):
    """A module's global that each process has its own of."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def _own(self) -> dict[Any, Any]:
        return World.now().runtime.process.globals.setdefault(self._name, {})

    def __getitem__(self, key: Any) -> Any:
        return self._own[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._own[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)

    def __hash__(self) -> int:
        return id(self)


class LockByProcess:
    """A module's lock that each process has its own of."""

    def __enter__(self) -> None:
        process = World.now().runtime.process
        lock = process.globals.setdefault("lock", {}).setdefault("lock", Threading(World.now().runtime).Lock())
        lock.acquire()

    def __exit__(self, *_: object) -> None:
        World.now().runtime.process.globals["lock"]["lock"].release()


SLOW = b"slow"
"""The key of records that take SLOW_S seconds."""

SLOW_S = 2.0

USUAL_S = 0.15
"""Seconds that other records take: more than there is between two commits, so that a lease makes several."""

CALL = 2
"""Records of one call of a lease."""


BUSY_POLL_S = 0.05
"""Seconds between two polls of a lease whose records are in flight: each is a step."""

SlowPolling = partial(ParallelConsumer, _timings=Timings(busy_poll_interval_s=BUSY_POLL_S))


class Guest:
    """A transform that writes ``partition@offset@value`` of each record, under its key."""

    def __init__(self, *_: Any) -> None:
        pass

    def compile(self, _: bytes) -> Guest:
        return self

    def instantiate(self, *_: Any) -> Guest:
        return self

    def parts(self, batch: pa.RecordBatch) -> Iterator[TransformResult]:
        columns = ("key", "partition", "offset", "value")
        rows = list(zip(*(batch.column(name).to_pylist() for name in columns), strict=True))
        World.now().runtime.sleep(SLOW_S if any(key == SLOW for key, *_ in rows) else USUAL_S)
        yield TransformResult(
            rows=batch.num_rows,
            outputs=pa.RecordBatch.from_arrays(
                [
                    pa.array(range(len(rows)), pa.int32()),
                    pa.array([0] * len(rows), pa.int32()),
                    pa.array([key for key, *_ in rows], pa.binary()),
                    pa.array([b"%d@%d@%s" % tuple(place) for _, *place in rows], pa.binary()),
                    pa.nulls(len(rows), OUTPUT_SCHEMA.field("headers").type),
                ],
                schema=OUTPUT_SCHEMA,
            ),
        )

    def close(self) -> None:
        pass


class Bound:
    """A stand-in for a module, which has the names of the history under way; all others are the module's."""

    all: ClassVar[list[Bound]] = []

    def __init__(self, module: ModuleType, of: str) -> None:
        self._module = module
        self._of = of
        self.all.append(self)
        if World.current is not None:
            self.go_to(World.current)

    def go_to(self, world: World) -> None:
        """Take the names of a history."""
        twin = getattr(world, self._of)
        self.__dict__.update({name: getattr(twin, name) for name in dir(twin) if not name.startswith("_")})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class World:
    """One history's cluster, Spark and time. ``current`` is that of the history under way."""

    current: World | None = None

    @classmethod
    def now(cls) -> World:
        """Return the world of the history under way."""
        assert cls.current is not None
        return cls.current

    def __init__(self) -> None:
        if World.current is not None:
            World.current.runtime.close()
        World.current = self
        self.runtime: Runtime = Runtime()
        self.time = Time(self.runtime)
        self.threading = Threading(self.runtime)
        self.uuid = Numbers()
        for bound in Bound.all:
            bound.go_to(self)
        self.cluster = MemoryCluster()
        self.reads_directly = False
        """Whether the tasks of micro-batches read and write by themselves."""
        Queue.runtime = Future.runtime = self.runtime
        self.environment = Client.environment = Environment(self.runtime, self.cluster)
        self.spark = Cluster(self.environment)

    def session(self, *_: Any) -> Spark:
        return Spark(self.spark, self.runtime.process)


class Numbers:
    """Stands for the module ``uuid``: names that are new, and the same in each history."""

    def __init__(self) -> None:
        self._made = 0

    def uuid4(self) -> uuid.UUID:
        self._made += 1
        return uuid.UUID(int=(0xABCDEF << 96) + self._made, version=4)


class Context:
    """Stands for TaskContext."""

    @staticmethod
    def get() -> Any:
        number = World.now().runtime.process.globals["task"]["number"]
        return SimpleNamespace(partitionId=lambda: number)


def checkpoint_state(spark: Spark, path: str) -> Any:
    """Stand for the reading of a checkpoint's files."""
    World.now().runtime.step()
    kept = spark.cluster.storage.get(path, Checkpoint())
    kind = sys.modules["wasmline.job_offsets.resume_plan"].CheckpointState
    return kind(planned=max(kept.offsets, default=-1), committed=max(kept.commits, default=-1))


def is_direct(stream: StreamSpec) -> bool:
    """Stand for the question whether tasks read and write by themselves, which is one of compiled code."""
    return World.now().reads_directly and stream.shards is None


def bind_clocks(patch: pytest.MonkeyPatch) -> None:
    """Let the cluster in memory go by the time of the history under way."""
    for name in ("cluster", "group", "transactional_producer"):
        patch.setattr(importlib.import_module(f"wasmline.consumer.backends.memory.{name}"), "time", Bound(time, "time"))


def _is_bound(module: str) -> bool:
    """Whether a module gets the twins."""
    if module in WATCHED_BY_A_REAL_THREAD:
        return False
    return module in ("wasmline.background_call", "wasmline.clock", "wasmline.transactional_ids") or module.startswith(
        tuple(package.__name__ for package in PACKAGES)
    )


def install(patch: pytest.MonkeyPatch) -> None:
    """Bind our code to the twins, module by module, wherever it has the real thing under any name."""
    for package in PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith(("__main__", "spark.metrics")):
                importlib.import_module(found.name)
    twins: dict[int, Any] = {
        id(time): Bound(time, "time"),
        id(threading): Bound(threading, "threading"),
        id(uuid): Bound(uuid, "uuid"),
        id(SimpleQueue): Queue,
        id(futures.Future): Future,
        id(confluent_kafka.Consumer): MemoryConsumer,
        id(confluent_kafka.Producer): MemoryProducer,
        id(admin.AdminClient): MemoryAdmin,
        id(reconnecting_clients.ReconnectingConsumer): MemoryConsumer,
        id(reconnecting_clients.ReconnectingProducer): MemoryProducer,
        id(reconnecting_clients.ReconnectingAdminClient): MemoryAdmin,
        id(committed_offset_store.LibrdkafkaOffsetStore): MemoryOffsetStore,
        id(committed_offset_store.OffsetsOnlyStore): OffsetsOnlyStore,
        id(TransformRuntime): Guest,
        id(TransactionRequests): MemoryTransactionRequests,
        id(transaction_log.decisions): decisions,
        id(pyspark.TaskContext): Context,
        id(sys.modules["wasmline.spark.microbatch.direct_task"].is_direct): is_direct,
        id(importlib.import_module("gc")): SimpleNamespace(
            collect=lambda: 0, freeze=lambda: None, set_threshold=lambda *_: None
        ),
    }
    if (checkpoint := sys.modules.get("wasmline.spark.checkpoint_reader")) is not None:
        twins[id(checkpoint.checkpoint_state)] = checkpoint_state
    for name, module in list(sys.modules.items()):
        if _is_bound(name):
            for attribute, value in list(vars(module).items()):
                if id(value) in twins or attribute == "VIRTUAL_SHARDS":  # which a history changes, and the patch resets
                    patch.setattr(module, attribute, twins.get(id(value), value))
    for name, attribute in (
        ("wasmline.spark.microbatch.task", "_idle"),
        ("wasmline.spark.microbatch.direct_task", "_readers"),
        ("wasmline.job_offsets.batch_outputs", "_producers"),
        ("wasmline.spark.microbatch.transactional_batches", "_transactions"),
        ("wasmline.leases.lease_status_reporter", "_logs"),
        ("wasmline.pipeline.transform_handler", "_handlers"),
    ):
        patch.setattr(sys.modules[name], attribute, ByProcess(name))
    handlers = sys.modules["wasmline.pipeline.transform_handler"]
    patch.setattr(handlers, "_handlers_lock", LockByProcess())
    patch.setenv("WASMLINE_COMPILED_COLUMNS", "0")  # it calls a real client
    patch.setattr(handlers.TransformHandler, "takes_columns", False)  # which a history changes, and the patch resets
    lease_source = sys.modules["wasmline.spark.parallel.lease_source"]
    patch.setattr(lease_source, "LeaseWorker", partial(lease_source.LeaseWorker, max_call_records=CALL))
    patch.setattr(sys.modules["wasmline.leases.lease_worker"], "ParallelConsumer", SlowPolling)
    patch.setattr(lease_source, "under_watchdog", lambda _: nullcontext(lambda _: None))
    patch.setattr(
        sys.modules["wasmline.spark.microbatch.transactional_batches"], "expr", lambda text: text
    )  # which asks the JVM
    patch.setattr(sys.modules["wasmline.spark.parallel.job"], "task_slots", lambda _: SLOTS)
    patch.setattr(sys.modules["wasmline.spark.parallel.query"], "registered_slots", lambda _: SLOTS)
    no_jitter = SimpleNamespace(uniform=lambda _, high: high)
    patch.setattr(sys.modules["wasmline.control.job_topic"], "random", no_jitter)  # a seed replays its history
    patch.setattr(sys.modules["wasmline.spark.main"], "session", lambda *given: World.now().session(*given))
