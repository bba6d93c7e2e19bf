"""Runs the key-parallel consumer on the partitions of a lease, until the lease is over. No Spark."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from wasmline.background_call import BackgroundCall
from wasmline.consumer import (
    ConsumedRecord,
    ConsumerHealth,
    ConsumerOptions,
    HandlerFactory,
    ParallelConsumer,
    RetryPolicy,
)
from wasmline.consumer.handler_adapters import Handler
from wasmline.control import Deployment, DeploymentTopic, JobControlState, LeaseWithdrawal, withdraw_lease
from wasmline.control.control_topics import JOBS
from wasmline.errors import (
    Conflict,
    HandlerBroken,
    HandlerStuck,
    InvalidJob,
    KafkaError,
    ModuleError,
    ProducerFenced,
    ProgressLost,
    RecordGivenUp,
    TransformError,
    WasmlineError,
)
from wasmline.job_offsets.catch_up import CatchUpTarget
from wasmline.job_specs import FunctionSpec
from wasmline.kafka import KafkaConfig, Topics, read_range
from wasmline.leases.lease import Lease, LeaseValidity
from wasmline.leases.lease_status_reporter import LeaseProgress, LeaseStatusReporter
from wasmline.leases.manual_backend import ManualBackend, PartitionAssignment, lease_expired_error
from wasmline.leases.timings import DEFAULT_TIMINGS, LeaseTimings
from wasmline.pipeline import handler_loader
from wasmline.pipeline.preflight import pause_reason
from wasmline.pipeline.transform_handler import BUFFERED_RECORDS, MAX_CALL_RECORDS, forget, transform_handler
from wasmline.topic_partitions import TopicPartition

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.25
"""Seconds between two checks of the consumer and the clock."""

STATUS_INTERVAL_S = 1.0
"""Seconds between two statuses."""

RETRY_BACKOFF_S = 1.0
"""Seconds until work that a broker interrupted is restarted."""

DEPLOYMENT_ERRORS = (HandlerBroken, RecordGivenUp, ModuleError, TransformError)
"""Errors that pause a deployment: running it again would end in the same way."""


class LeaseWorker:
    """Processes a lease until it is over."""

    def __init__(
        self,
        config: KafkaConfig,
        lease: Lease,
        beat: Callable[[float], None] = lambda seconds: None,
        *,
        timings: LeaseTimings = DEFAULT_TIMINGS,
        max_call_records: int = MAX_CALL_RECORDS,
    ) -> None:
        """``beat`` is called as a heartbeat, with the seconds in which the work must have ended.

        ``max_call_records``: maximum records of one call of a module.
        """
        self._config = config
        self._lease = lease
        self._beat = beat
        self._timings = timings
        self._max_call_records = max_call_records
        left = min(max(timings.min_lease_s, lease.until - time.time()), lease.stream.lease_seconds)
        self._until = time.time() + left
        self._deadline = self._until + timings.end_timeout_s
        self._validity = LeaseValidity(self._deadline, timings)
        self._control = JobControlState(lease.job.job, lease.stream.transform)
        self._over = threading.Event()
        self._ended = threading.Event()
        self._consumer: ParallelConsumer | None = None
        self._statuses = LeaseStatusReporter(config, lease, self._validity.held)
        self._progress = {TopicPartition(lease.topic, each): at for each, at in lease.progress.items()}
        """Minimum of the group's progress: the lease's start, or later commits."""
        self._left: dict[int, int] = {}
        """Final offsets of the lease's partitions, where known."""
        self._target: CatchUpTarget | None = None
        if lease.bounds is not None:
            bounds = {TopicPartition(lease.topic, each): found for each, found in lease.bounds.items()}
            self._target = CatchUpTarget(config, bounds)
        self.reason = "its time is over"
        """The reason for the end, once it is over."""

    def run(self) -> Iterator[LeaseProgress]:
        """Run until the lease is over and all that was in flight is committed; yield statuses meanwhile.

        It also ends when another process takes over its partitions. Raises errors that a retry does not resolve, and
        HandlerStuck where a handler does not return: its process must not run another lease.
        """
        heartbeats = BackgroundCall(self._send_heartbeats)
        try:
            while not self._over.is_set() and time.time() < self._until:
                try:
                    yield from self._attempt()
                except ProducerFenced as error:
                    self._withdraw()
                    self._end(str(error))
                except ProgressLost as error:  # for the planner to report: a task that is retried knows less
                    self._left = {error.partition: self._progress[TopicPartition(error.topic, error.partition)]}
                    self._withdraw()
                    self._end(str(error))
                except WasmlineError as error:
                    self._handle_error(error)
        finally:
            self._statuses.close(self._consumer.health() if self._consumer else None, self._left)
            self._ended.set()
            heartbeats.result()
        where = f"{self._lease.topic} {list(self._lease.partitions)}"
        if self._statuses.denied is not None:
            raise self._statuses.denied
        logger.info("lease %d of job %s on %s is over: %s", self._lease.epoch, self._lease.job.job, where, self.reason)

    def _attempt(self) -> Iterator[LeaseProgress]:
        handler, options = self._handler_and_options()
        assignment = PartitionAssignment(
            progress=self._progress,
            followed={TopicPartition(topic, 0): offset for topic, offset in self._lease.control_offsets.items()},
            follow=self._apply_control_record,
            held=self._validity.held,
            require_owner=self._require_owner,
            keeps_maps=self._lease.keeps_maps,
            client=self._lease.client,
            outputs=self._lease.deployment.spec.topics[1:] if self._lease.deployment else (),
        )
        backend = ManualBackend(options, assignment)
        consumer = self._consumer = ParallelConsumer(options, backend)
        if self._over.is_set():
            return
        self._statuses.begin()
        running = BackgroundCall(partial(consumer.run, handler))
        reported = 0.0
        try:
            while not running.wait(self._pause):
                health = consumer.health()
                if backend.transactions.fenced is not None:
                    consumer.stop(drain=False)  # the lease is withdrawn once it has ended
                    continue
                self._end_if_done(health)
                if self._statuses.denied is not None:
                    self._end("an ACL is missing")
                if time.monotonic() - reported >= STATUS_INTERVAL_S:
                    reported = time.monotonic()
                    yield self._statuses.publish(health)
        finally:
            consumer.stop(drain=False)
            running.wait()
        yield self._statuses.publish(consumer.health())
        if backend.transactions.fenced is not None:
            raise backend.transactions.fenced
        if consumer.stuck:
            seconds = self._timings.drain_timeout_s
            raise HandlerStuck(f"{consumer.stuck} handlers did not return within {seconds:.0f} s: give them time-outs")
        try:
            running.result()
        except WasmlineError as error:
            if isinstance(error, DEPLOYMENT_ERRORS):  # of others it may be unknown what is committed
                self._left = _settled(consumer)
            raise
        self._left = _settled(consumer)

    @property
    def _pause(self) -> float:
        """Seconds until the next check."""
        return POLL_INTERVAL_S if self._over.is_set() else max(0.0, min(POLL_INTERVAL_S, self._until - time.time()))

    def _send_heartbeats(self) -> None:
        """Send heartbeats, independent of the work: a reader of its rows, such as a JVM, may pause."""
        while not self._ended.wait(POLL_INTERVAL_S):
            self._validity.renew()
            self._beat(self._deadline - time.time())

    def _handler_and_options(self) -> tuple[Handler | HandlerFactory, ConsumerOptions]:
        """Return the handler and its options."""
        if self._lease.deployment is not None:
            return self._transform(self._lease.deployment)
        if self._lease.stream.function is not None:
            return self._function(self._lease.stream.function)
        raise InvalidJob(f"job {self._lease.job.job} runs neither a transform nor a function")

    def _transform(self, deployment: Deployment) -> tuple[HandlerFactory, ConsumerOptions]:
        spec = deployment.spec
        handler = transform_handler(self._config, deployment)
        handler.listener = self._statuses.add_logs
        return handler, self._options(
            batch_size=self._max_call_records,
            buffer_records=BUFFERED_RECORDS,
            max_concurrency=self._lease.stream.max_concurrency or os.cpu_count() or 1,
            dead_letter_topic=spec.dead_letter_topic,
            dead_letter_headers=tuple(handler.origin),
            kafka={"compression.type": spec.compression, **self._config.properties},
        )

    def _function(self, spec: FunctionSpec) -> tuple[Handler | HandlerFactory, ConsumerOptions]:
        return handler_loader.load_handler(spec.function), self._options(
            batch_size=spec.batch_size,
            max_concurrency=self._lease.stream.max_concurrency,
            retry=RetryPolicy(delay_ms=spec.retry_delay_ms, max_attempts=spec.max_attempts),
            dead_letter_topic=spec.dead_letter_topic,
            kafka=self._config.properties,
        )

    def _options(self, **chosen: Any) -> ConsumerOptions:
        stream = self._lease.stream
        chosen |= {"ordering": stream.ordering, "delivery": stream.delivery}
        chosen |= {"fail_on_data_loss": stream.fail_on_data_loss}
        chosen |= {"commit_interval_ms": stream.commit_interval_ms}
        chosen |= {"drain_wait_ms": int(self._timings.drain_timeout_s * 1_000)}
        job = self._lease.job
        return ConsumerOptions(
            topics=(self._lease.topic,),
            group_id=job.group,
            transactional_id=job.transactional_id,
            revoke_wait_ms=0,
            **{name: value for name, value in chosen.items() if value is not None},
        )

    # -- the end ------------------------------------------------------------------------------------------------------

    def _apply_control_record(self, record: ConsumedRecord) -> None:
        """Apply a control record of the job; on the consumer's own thread, so that nothing comes in between."""
        if self._control.apply(record.topic, record.key, record.value):
            claim = self._control.claim
            if claim is not None and self._lease.is_taken_by(claim):
                self._validity.lose()
            reason = self._lease.superseded(self._control)
            if reason is not None and not self._over.is_set():
                self._end(reason)
                self._preload_next_handler()

    def _require_owner(self) -> None:
        """Raise ProducerFenced if another lease was claimed before now: its producers may just have been fenced."""
        control = JobControlState(self._lease.job.job, self._lease.stream.transform)
        end = Topics(self._config).end_offsets(JOBS)[0]
        for record in read_range(self._config, JOBS, {0: (self._lease.control_offsets[JOBS], end)}):
            control.apply(JOBS, record.key(), record.value())
        if control.claim is not None and self._lease.is_taken_by(control.claim):
            self._validity.lose()
            raise lease_expired_error()

    def _preload_next_handler(self) -> None:
        """Start to load the next lease's handler, if that is another generation; its errors are left to that lease."""
        mine, deployed = self._lease.deployment, self._control.deployment
        if mine and deployed and deployed.generation != mine.generation and deployed.state == "running":
            BackgroundCall(partial(transform_handler, self._config, deployed))

    def _end_if_done(self, health: ConsumerHealth) -> None:
        """End the lease if its time is over, or all of its records are done."""
        if self._target is not None and self._target.reached(health):
            self._end("it has caught up")
        elif time.time() >= self._until:
            self._end(self.reason)

    def _end(self, reason: str) -> None:
        if self._over.is_set():
            return
        self.reason = reason
        self._deadline = min(self._deadline, time.time() + self._timings.end_timeout_s)
        self._over.set()
        if self._consumer is not None:
            self._consumer.stop(drain=False)

    def _handle_error(self, error: WasmlineError) -> None:
        """Pause a deployment that is at fault; restart after a transient error; raise any other."""
        deployment = self._lease.deployment
        if deployment is not None and isinstance(error, DEPLOYMENT_ERRORS):
            forget()
            reason = pause_reason(error)
            if self._validity.held():
                self._pause_deployment(deployment, reason)
            else:  # a module that worked while its process stood still is not at fault
                self._withdraw()
            self._end(reason)
        elif error.retryable:
            logger.warning("opening the partitions of the lease again in %.0f s: %s", RETRY_BACKOFF_S, error)
            self._over.wait(RETRY_BACKOFF_S)
        else:
            raise error

    def _pause_deployment(self, deployment: Deployment, reason: str) -> None:
        log = DeploymentTopic(self._config)
        try:
            log.pause_generation(deployment, reason, run=f"{self._lease.job.job}/{self._lease.job.run}")
        finally:
            log.close()

    def _withdraw(self) -> None:
        """Withdraw the lease, so that its end is not awaited: its partitions may have no owner until then."""
        if self._over.is_set():
            return
        withdrawal = LeaseWithdrawal(driver=self._lease.driver, epoch=self._lease.epoch)
        try:
            withdraw_lease(self._config, self._lease.job.job, withdrawal)
        except (Conflict, KafkaError) as error:  # a task that fails is run again, and would take partitions back
            text = "lease %d of job %s is not withdrawn, so its partitions may have no owner until it ends: %s"
            logger.error(text, self._lease.epoch, self._lease.job.job, error)


def _settled(consumer: ParallelConsumer) -> dict[int, int]:
    """Return the committed offsets of partitions of which nothing is done that the broker may not have."""
    return {each.partition.partition: each.settled for each in consumer.health().partitions if each.settled is not None}
