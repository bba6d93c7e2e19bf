"""What a consumer says of a broker that is away, or has lost something, on a real Kafka."""

from __future__ import annotations

import uuid
from dataclasses import replace

from support.consumers.clusters import Kafka, numbered
from support.consumers.running_consumer import PROMPT, Ledger, Running
from wasmline.consumer import ConsumerOptions
from wasmline.testing.kafka import RunningKafka


def test_the_health_tells_of_brokers_that_are_away(stoppable_kafka: RunningKafka) -> None:
    cluster, ledger = Kafka(stoppable_kafka), Ledger()
    options = ConsumerOptions(topics=(cluster.topic(),), group_id=f"group-{uuid.uuid4()}")
    timings = replace(PROMPT, statistics_interval_s=0.1)
    with Running(cluster, options, ledger.note, timings=timings) as running:
        running.until(lambda health: health.connected_brokers == 1)
        stoppable_kafka.local.kill_node(1)
        running.until(lambda health: health.connected_brokers == 0)
        stoppable_kafka.local.start_node(1)
        running.until(lambda health: health.connected_brokers == 1)
        cluster.write(*numbered(options.topics[0], 1))
        ledger.count(1)
