"""A job in parallel mode: its checks before the start, and the query that runs it."""

from __future__ import annotations

from wasmline.consumer import ConsumerOptions
from wasmline.control import Deployment
from wasmline.job_offsets.catch_up import snapshot_bounds
from wasmline.job_offsets.data_loss_check import DataLossCheck
from wasmline.kafka import ConsumerGroups, Topics
from wasmline.leases.manual_backend import probe_cluster
from wasmline.spark.deployment_tracker import require_unpaused
from wasmline.spark.parallel.query import LeaseQuery
from wasmline.spark.run_planner import PlannedRun, PreparedRun
from wasmline.spark.session import task_slots
from wasmline.spark.stream_job import StreamJob
from wasmline.topic_partitions import TopicPartition


class ParallelJob(StreamJob[Deployment | None]):
    """One run of a job in parallel mode. Leases follow each other at once, whatever the trigger interval."""

    safe_point = "the end of a lease"

    def _prepare(self) -> PreparedRun[Deployment | None]:
        """Check the deployment, the topic, the members of the group and the capabilities of the cluster.

        Raises TopicNotFound, GroupInUse, UnsafeBroker, DeploymentPaused.
        """
        context, function = self._context, self._context.stream.function
        deployment = None
        if function is None:
            deployment = context.deployments.running()
            context.deployments.check(deployment)
            topic = deployment.spec.input_topic
        else:
            require_unpaused(context.jobs.order(context.job.job))
            topic = function.topic
        ConsumerGroups(context.config).require_no_members(context.job.group)
        Topics(context.config).describe(topic)
        options = ConsumerOptions(
            topics=(topic,),
            group_id=context.job.group,
            transactional_id=context.job.transactional_id,
            delivery=context.stream.delivery,  # type: ignore[arg-type]
            kafka=context.config.properties,
        )
        return PreparedRun(
            deployment=deployment,
            topic=topic,
            data_loss=DataLossCheck(context.config, topic, fails=context.stream.fail_on_data_loss),
            keeps_maps=probe_cluster(options, TopicPartition(topic, 0)),
        )

    def _begin(self, run: PlannedRun[Deployment | None]) -> LeaseQuery:
        context, topic = self._context, run.topic.name
        bounds = None
        if context.stream.trigger_interval is None:
            offsets = {TopicPartition(topic, each): at for each, at in run.plan.offsets.items()}
            bounds = snapshot_bounds(context.config, [topic], offsets)
        return LeaseQuery(context, run, bounds, slots=task_slots(context.spark.sparkContext))
