"""A job in parallel mode: a query whose batches are rounds of leases, monitored by the statuses of its tasks."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from wasmline.consumer import ConsumerOptions
from wasmline.control import Deployment, DriverClaim, LeaseWithdrawal
from wasmline.documents import plain
from wasmline.errors import InvalidJob, JobFailed, KafkaError
from wasmline.job_offsets.catch_up import CatchUpTarget, snapshot_end_offsets
from wasmline.job_offsets.committed_offsets import reset_offsets
from wasmline.jobs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import ConsumerGroups, KafkaConfig, Topics
from wasmline.leases.lease import lease_name
from wasmline.leases.lease_planner import PlannerConfig, require_task_limit
from wasmline.leases.manual_backend import probe_cluster
from wasmline.records import TopicPartition
from wasmline.spark.error_parsing import cause, refusal
from wasmline.spark.parallel.lease_source import PLANNER_CONFIG, TRANSFORM, LeaseSource
from wasmline.spark.parallel.report import LeaseReporter
from wasmline.spark.session import task_slots
from wasmline.spark.stream_job import HEARTBEAT_INTERVAL_S, StreamJob

log = logging.getLogger(__name__)

IDLE_POLL_MS = "50"
"""Milliseconds between two polls for a lease while none is planned; each is a round trip to Python."""


TASK_START_TIMEOUT_S = 60.0
"""Seconds that a task may wait for a slot, for example while an executor is replaced."""


class ParallelJob(StreamJob[Deployment | None]):
    """One run of a job in parallel mode. Leases follow each other at once, whatever the trigger interval."""

    boundary = "the end of a lease"

    def __init__(self, spark: SparkSession, config: KafkaConfig, job: JobSpec, stream: StreamSpec) -> None:
        super().__init__(spark, config, job, stream)
        self._groups = ConsumerGroups(config)
        self._topics = Topics(config)
        self._ends: dict[TopicPartition, tuple[int, int]] | None = None
        self._looked = self._all_active = time.monotonic()

    def _current(self) -> Deployment | None:
        if self._stream.function is None:
            return self._deployed()
        self._topic = self._stream.function.topic
        return None

    def _prepare(self, deployment: Deployment | None) -> None:
        """Check the members of the group, the capabilities of the cluster, and the number of tasks.

        Raises GroupInUse, UnsafeBroker, InvalidJob.
        """
        if deployment is not None:
            self._generations.check(deployment)
        group = self._job.group
        self._groups.require_no_members(group)
        require_task_limit(
            self._topics.describe(self._topic).partitions, self._stream.tasks, self._slots(), self._topic
        )
        options = ConsumerOptions(
            topics=(self._topic,),
            group_id=group,
            transactional_id=self._job.transactional_id,
            delivery=self._stream.delivery,  # type: ignore[arg-type]
            kafka=self._config.properties,
        )
        self._keeps_maps = probe_cluster(options, TopicPartition(self._topic, 0))

    def _begin(self, deployment: Deployment | None) -> None:
        reset_offsets(self._config, self._job, self._topic, self._plan.corrections, self._claims.refuse_others)
        if self._stream.trigger_interval is None:
            places = {TopicPartition(self._topic, each): at for each, at in self._plan.offsets.items()}
            self._ends = snapshot_end_offsets(self._config, [self._topic], places)
        self._progress = LeaseReporter(self._job, self._topic, self._jobs, self._status)
        self._progress.begin(deployment, self._plan.offsets, self._topics.end_offsets(self._topic))

    def _start(self, deployment: Deployment | None) -> StreamingQuery:
        planned = PlannerConfig(
            job=self._job.job,
            run=self._job.run,
            driver=self._name,
            checkpoint=self._plan.checkpoint,
            topic=self._topic,
            topic_id=self._input.id,
            slots=self._slots(),
            ends=None if self._ends is None else {each.partition: bounds for each, bounds in self._ends.items()},
            keeps_maps=self._keeps_maps,
            is_renewed=self._is_renewed,
            late=self._plan.late,
        )
        self._reached = None if self._ends is None else CatchUpTarget(self._config, self._ends)
        self._spark.dataSource.register(LeaseSource)
        self._spark.conf.set("spark.sql.streaming.pollingDelay", IDLE_POLL_MS)
        source = self._spark.readStream.format(LeaseSource.name())
        source = source.option(PLANNER_CONFIG, json.dumps(plain(planned))).option(TRANSFORM, self._stream.transform)
        writer = source.load().writeStream.queryName(f"{self._job.job} {self._job.run}").format("noop")
        return writer.option("checkpointLocation", self._plan.checkpoint).start()

    def _follow(self, query: StreamingQuery) -> bool:
        paused = False
        if self._stream.transform:
            deployment = self._generations.current()
            paused = deployment.state == "paused"
            if self._stream.trigger_interval is None:
                self._refuse_paused(deployment)
        moved = self._progress.follow(paused=paused and not query.status["isTriggerActive"])
        if self._reached is not None and query.isActive and not query.status["isTriggerActive"]:
            committed = self._groups.committed(self._job.group, self._topic)
            if self._reached.passed({TopicPartition(self._topic, each): at for each, at in committed.items()}):
                query.stop()
        if time.monotonic() - self._looked > HEARTBEAT_INTERVAL_S:
            self._looked = time.monotonic()
            self._look_for_partitions()
            self._refuse_starved()
        return moved

    def _slots(self) -> int:
        return task_slots(self._spark.sparkContext)

    def _look_for_partitions(self) -> None:
        """End a round of leases that lacks newly added partitions of the topic."""
        topic = self._topics.describe(self._topic)
        self._refuse_made_anew(topic.id)
        claim = self._jobs.last_batch(self._job.job)
        if claim is None or claim.driver != self._name or claim.batch_id < 0 or claim.partitions >= topic.partitions:
            return
        log.info("%s has new partitions; they join the next lease", self._topic)
        self._jobs.write_withdrawal(self._job.job, LeaseWithdrawal(driver=self._name, epoch=claim.batch_id))

    def _refuse_starved(self) -> None:
        """Raise InvalidJob if there are more tasks than slots: partitions of waiting tasks would not be read."""
        tracker = self._spark.sparkContext.statusTracker()
        stages = [stage for each in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(each))]
        tasks = sum(stage.numTasks - stage.numCompletedTasks for stage in stages)
        active = sum(stage.numActiveTasks for stage in stages)
        if active >= tasks:
            self._all_active = time.monotonic()
        elif time.monotonic() - self._all_active > TASK_START_TIMEOUT_S:
            raise InvalidJob(
                f"{tasks} tasks share {self._topic}, but only {active} of them run: set tasks to {active} or less, or "
                "give Spark more cores"
            )

    def _bring_to_rest(self, query: StreamingQuery) -> None:
        if query.isActive:
            try:
                self._jobs.stop(self._job.job, self._job.run)  # or one lease would follow another
            except KafkaError as error:
                log.warning("the leases of job %s could not be told to stop: %s", self._job.job, error)
        super()._bring_to_rest(query)

    def _came_to(self, newest: DriverClaim) -> Mapping[int, int]:
        """Return the progress of the tasks of the last lease, as far as they ended it and reported it."""
        name = lease_name(self._name, newest.batch_id)
        told = [each for each in self._status.of(self._job.job) if each.lease == name]
        return {each.partition: each.committed for each in told if each.committed is not None}

    def _report(self, state: JobState, message: str = "", error: str | None = None) -> JobReport:
        return self._progress.report(state, message, error)

    def _explain(self, exception: StreamingQueryException) -> None:
        text = str(exception)
        refused = refusal(text)
        if refused is not None:
            raise refused from exception
        message = f"a lease of job {self._job.job} failed; uncommitted records will be processed again: {cause(text)}"
        raise JobFailed(message, report={}) from exception
