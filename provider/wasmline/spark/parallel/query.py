"""The query of a job in parallel mode: its batches are rounds of leases, monitored by the statuses of their tasks."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from wasmline.control import Deployment, DriverClaim, LeaseWithdrawal, left_offsets
from wasmline.documents import plain
from wasmline.errors import Fenced, JobFailed, KafkaError
from wasmline.job_offsets.catch_up import CatchUpTarget
from wasmline.job_offsets.resume_plan import require_same_topic
from wasmline.job_specs import HEARTBEAT_INTERVAL_S, JobReport, JobState, stream_of
from wasmline.kafka import ConsumerGroups, Topics
from wasmline.kafka.librdkafka_ctypes import CLIENT
from wasmline.leases.lease import lease_name
from wasmline.leases.lease_planner import PlannerConfig
from wasmline.spark.deployment_tracker import require_running, require_unpaused
from wasmline.spark.driver_context import DriverContext
from wasmline.spark.error_parsing import cause, job_error
from wasmline.spark.job_query import JobQuery
from wasmline.spark.parallel.job_reporter import ParallelReporter
from wasmline.spark.parallel.lease_source import PLANNER_CONFIG, TRANSFORM, LeaseSource
from wasmline.spark.parallel.task_limit import RoundSample, TaskLimit
from wasmline.spark.run_planner import PlannedRun
from wasmline.spark.session import registered_slots
from wasmline.topic_partitions import TopicPartition
from wasmline.transactional_ids import virtual_shards

log = logging.getLogger(__name__)

IDLE_POLL_MS = "50"
"""Milliseconds between two polls for a lease while none is planned; each is a round trip to Python."""


class LeaseQuery(JobQuery):
    """The query of a run in parallel mode. ``bounds``: begin and end of partitions, for a job that catches up."""

    def __init__(
        self,
        context: DriverContext,
        run: PlannedRun[Deployment | None],
        bounds: Mapping[TopicPartition, tuple[int, int]] | None,
        *,
        slots: int,
    ) -> None:
        self._context = context
        self._run = run
        self._groups = ConsumerGroups(context.config)
        self._topics = Topics(context.config)
        self._slots = slots
        self._bounds = bounds
        self._caught_up = None if bounds is None else CatchUpTarget(context.config, bounds)
        self._checked = time.monotonic()
        self._task_limit = TaskLimit(context.timings.task_start_timeout_s)
        self._slots_message = ""
        self._reporter = ParallelReporter(context.job, run.topic.name, context.write_report, context.statuses)
        self._reporter.begin(run.deployment, run.plan.offsets, self._topics.end_offsets(run.topic.name))

    def start(self) -> StreamingQuery:
        job, stream, spark, plan = self._context.job, self._context.stream, self._context.spark, self._run.plan
        planned = PlannerConfig(
            job=job.job,
            run=job.run,
            driver=self._context.driver,
            checkpoint=plan.checkpoint,
            topic=self._run.topic.name,
            topic_id=self._run.topic.id,
            offsets=plan.offsets,
            slots=self._slots,
            bounds=None if self._bounds is None else {each.partition: found for each, found in self._bounds.items()},
            keeps_maps=self._run.prepared.keeps_maps,
            client=CLIENT,
            is_renewed=self._run.is_renewed,
            late=plan.late,
            epoch=max(0, plan.epoch),
        )
        spark.dataSource.register(LeaseSource)
        spark.conf.set("spark.sql.streaming.pollingDelay", IDLE_POLL_MS)
        source = spark.readStream.format(LeaseSource.name())
        source = source.option(PLANNER_CONFIG, json.dumps(plain(planned))).option(TRANSFORM, stream.transform)
        writer = source.load().writeStream.queryName(f"{job.job} {job.run}").format("noop")
        return writer.option("checkpointLocation", plan.checkpoint).start()

    def poll(self, query: StreamingQuery) -> bool:
        topic, stream = self._run.topic.name, self._context.stream
        paused = False
        if stream.transform:
            deployment = self._context.deployments.current()
            paused = deployment.state == "paused"
            if stream.trigger_interval is None:
                require_running(deployment)
        else:
            order = self._context.jobs.order(self._context.job.job)
            paused = order.paused
            if stream.trigger_interval is None:
                require_unpaused(order)
        moved = self._reporter.follow(paused=paused and not query.status["isTriggerActive"])
        if (
            time.monotonic() - self._checked > HEARTBEAT_INTERVAL_S
        ):  # first: of a recreated topic the end may never come
            self._checked = time.monotonic()
            self._withdraw_if_partitions_were_added()
            self._limit_tasks()
        if self._caught_up is not None and query.isActive and not query.status["isTriggerActive"]:
            committed = self._groups.committed(self._context.job.group, topic)
            if self._caught_up.passed({TopicPartition(topic, each): at for each, at in committed.items()}):
                query.stop()
        return moved

    def report(self, state: JobState, message: str = "", error: str | None = None) -> JobReport:
        return self._reporter.report(state, message or ("" if state.final else self._slots_message), error)

    def before_stop(self) -> None:
        """End this driver's leases, and plan no more: otherwise one would follow another."""
        job, driver = self._context.job.job, self._context.driver
        try:
            newest = self._context.jobs.last_claim(job)
            if newest is not None and newest.driver == driver:
                epoch = newest.batch_id + 1  # one may be planned at this moment
                withdrawal = LeaseWithdrawal(driver=driver, epoch=epoch, max_tasks=0)
                self._context.records.write_withdrawal(withdrawal)
        except (KafkaError, Fenced) as error:
            log.warning("the leases of job %s could not be told to stop: %s", job, error)

    def raise_cause(self, query: StreamingQuery, exception: StreamingQueryException) -> None:
        text = str(exception)
        error = job_error(text)
        if error is not None:
            raise error from exception
        job = self._context.job.job
        message = f"a lease of job {job} failed; uncommitted records will be processed again: {cause(text)}"
        raise JobFailed(message, report={}) from exception

    def certain_offsets(self, newest: DriverClaim) -> Mapping[int, int]:
        """Return the progress of the tasks of the last lease, as far as they ended it and reported it."""
        context = self._context
        name = lease_name(context.driver, newest.batch_id)
        left = left_offsets(context.config, context.job.job, name, delivery=newest.delivery)
        return {partition: offset for partition, (offset, is_exact) in left.items() if is_exact}

    def _withdraw_if_partitions_were_added(self) -> None:
        """End a round of leases that lacks newly added partitions of the topic."""
        context = self._context
        topic = self._topics.describe(self._run.topic.name)
        require_same_topic(self._run.topic, topic.id)
        claim = self._current_round()
        if claim is not None and claim.partitions < topic.partitions:
            log.info("%s has new partitions; they join the next lease", topic.name)
            context.records.write_withdrawal(LeaseWithdrawal(driver=context.driver, epoch=claim.batch_id))

    def _limit_tasks(self) -> None:
        """Let the next rounds have as many tasks as there are slots; end the current one where that is another number.

        Partitions of a task that waits for a slot are not read.
        """
        context, spark = self._context, self._context.spark.sparkContext
        claim = self._current_round()
        if claim is None:
            return
        tracker = spark.statusTracker()
        stages = [stage for each in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(each))]
        tasks = {stage.stageId: stage.numTasks - stage.numCompletedTasks for stage in stages}
        waiting = {stage.stageId: tasks[stage.stageId] - stage.numActiveTasks for stage in stages}
        asked = stream_of(context.jobs.order(context.job.job).spec).tasks
        partitions = len(virtual_shards(range(claim.partitions)))
        slots, wanted = registered_slots(spark), min(asked or partitions, partitions)
        sample = RoundSample(tasks=tasks, waiting=waiting, slots=slots, wanted=wanted)
        limit = self._task_limit.changed(time.monotonic(), sample)
        needed = min(asked or 1, partitions)
        self._slots_message = f"Spark has {slots} slots for {needed} tasks" if slots < needed else ""
        if limit is not None:
            log.warning("job %s: %d tasks from the next round on; Spark has %d slots", context.job.job, limit, slots)
            withdrawal = LeaseWithdrawal(driver=context.driver, epoch=claim.batch_id, max_tasks=limit)
            context.records.write_withdrawal(withdrawal)

    def _current_round(self) -> DriverClaim | None:
        """Return the claim of this driver's newest round, None before its first."""
        claim = self._context.jobs.last_claim(self._context.job.job)
        if claim is None or claim.driver != self._context.driver or claim.batch_id <= self._run.plan.epoch:
            return None
        return claim
