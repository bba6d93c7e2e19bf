"""A job in micro-batches: its checks before the start, and the query that runs it."""

from __future__ import annotations

from wasmline.control import Deployment
from wasmline.job_offsets.data_loss_check import DataLossCheck
from wasmline.spark.microbatch.query import MicrobatchQuery
from wasmline.spark.microbatch.transactional_batches import TransactionalBatches, require_transactions
from wasmline.spark.run_planner import PlannedRun, PreparedRun
from wasmline.spark.stream_job import StreamJob


class MicrobatchJob(StreamJob[Deployment]):
    """One run of a streaming job in batches."""

    safe_point = "a batch boundary"

    def _prepare(self) -> PreparedRun[Deployment]:
        context = self._context
        deployment = context.deployments.running()
        context.deployments.check(deployment)
        context.config.java()  # raises InvalidKafkaConfig for a setting that Spark's client does not have
        topic = deployment.spec.input_topic
        if not context.has_authoritative_claims:
            require_transactions(context.config, context.job, topic)
        data_loss = DataLossCheck(context.config, topic, fails=context.stream.fail_on_data_loss)
        return PreparedRun(deployment=deployment, topic=topic, data_loss=data_loss)

    def _begin(self, run: PlannedRun[Deployment]) -> MicrobatchQuery:
        context = self._context
        transactions = None
        if not context.has_authoritative_claims:
            transactions = TransactionalBatches(
                context.config,
                context.job,
                run.topic.name,
                run.plan,
                run.mapped,
                context.claims.require_newest,
                is_renewed=run.is_renewed,
                max_renewal_interval_s=context.timings.max_renewal_interval_s,
            )
        return MicrobatchQuery(context, run, transactions)
