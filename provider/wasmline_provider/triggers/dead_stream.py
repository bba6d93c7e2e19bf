"""Fires while a continuous stream that should run has no driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wasmline.errors import InvalidJob
from wasmline.job_specs import require_job_name
from wasmline_provider.argument_checks import require_list
from wasmline_provider.hooks.kafka import KafkaHook
from wasmline_provider.triggers.polling import Poller, PollingEventTrigger

if TYPE_CHECKING:
    from wasmline.kafka import KafkaConfig
    from wasmline_provider.hooks.wasmline import Locations

POLL_INTERVAL_S = 5.0


class DeadStreamTrigger(PollingEventTrigger):
    """Fires when the driver of a continuous stream has died, and again after growing delays until one runs.

    It watches an asset, on which a DAG is scheduled that ensures the streams::

        dead = DeadStreamTrigger(jobs=["delivery-distance"])
        dead_streams = Asset("streams.dead", watchers=[AssetWatcher("dead", dead)])

    The payload is ``{"jobs": [{"job", "run", "state", "error", "message", "updated_ms"}]}``; the state is ``failed``,
    ``stopped`` by the system, or ``lost`` without a heartbeat, which a SparkJobOperator then does not wait for again.
    Jobs that a user stopped, that nobody ever ordered, and those whose error a restart does not cure are not told of.

    :param jobs: names of the jobs.
    :param kafka_conn_id: the connection of the cluster.
    :param poll_seconds: the time between two polls.
    """

    def __init__(
        self,
        *,
        jobs: Sequence[str],
        kafka_conn_id: str = KafkaHook.default_conn_name,
        poll_seconds: float = POLL_INTERVAL_S,
    ) -> None:
        super().__init__(kafka_conn_id=kafka_conn_id, poll_seconds=poll_seconds)
        require_list(InvalidJob, "jobs", jobs)  # a trigger has no templates
        for job in jobs:
            require_job_name(job)
        self.jobs = list(jobs)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            "wasmline_provider.triggers.dead_stream.DeadStreamTrigger",
            {"jobs": self.jobs, "kafka_conn_id": self.kafka_conn_id, "poll_seconds": self.poll_seconds},
        )

    def poller(self, config: KafkaConfig, locations: Locations) -> Poller:
        from wasmline.control import DeadRunDetector, JobTopic
        from wasmline.documents import plain

        topic, detector = JobTopic(config), DeadRunDetector(self.jobs, interval_s=self.poll_seconds)

        def poll() -> dict[str, Any] | None:
            dead = detector.poll(topic)
            return {"jobs": [plain(each) for each in dead]} if dead else None

        return Poller(poll, topic.close)
