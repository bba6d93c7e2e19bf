"""A planner of leases is made without a cluster: it waits for one when it plans."""

from wasmline.kafka import KafkaConfig
from wasmline.leases.lease_planner import LeasePlanner, PlannerConfig
from wasmline.local.ports import HOST, free_port

PLANNED = PlannerConfig(job="j", run="r", driver="d", checkpoint="c", topic="t", slots=1)


def test_a_planner_is_made_and_closed_while_no_broker_is_there() -> None:
    config = KafkaConfig({"bootstrap.servers": f"{HOST}:{free_port(set())}", "log_level": "0"})
    LeasePlanner(config, PLANNED, "").close()
