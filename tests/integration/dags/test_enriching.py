"""The demo's comparison and the handler of ``enrich_over_http``, on a real broker, without Spark and Airflow."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from demo_stack.progress_lines import ProgressLines
from enriching.benchmark import ConsumerComparison
from enriching.service import SlowService
from enrichment_handler import with_customer
from wasmline.consumer import ConsumedRecord, ConsumerOptions, Output, ParallelConsumer, RetryPolicy
from wasmline.errors import TerminalFailure, VerificationFailed
from wasmline.kafka import read_to_end
from wasmline.testing.kafka import RunningKafka

ORDERS, SEQUENTIAL_ORDERS, PARTITIONS, KNOWN = 600, 300, 3, 599


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowService]:
    with SlowService(0.01) as opened:
        monkeypatch.setenv("CUSTOMERS_URL", opened.url)
        yield opened


@pytest.fixture
def scene(kafka: RunningKafka, service: SlowService, monkeypatch: pytest.MonkeyPatch) -> ConsumerComparison:
    """Three topics, and mode parallel's consumer in this process."""
    topic, enriched, letters = (kafka.topic(partitions=PARTITIONS) for _ in range(3))
    monkeypatch.setenv("ENRICHED_TOPIC", enriched)

    def run() -> None:
        options = ConsumerOptions(
            topics=(topic,),
            group_id=f"group-{topic}",
            max_concurrency=32,
            delivery="exactly_once",  # type: ignore[arg-type]
            dead_letter_topic=letters,
            retry=RetryPolicy(max_attempts=3),
            kafka=kafka.config.properties,
        )
        consumer = ParallelConsumer(options)

        def handle(record: ConsumedRecord) -> Output:
            try:
                return with_customer(record)
            finally:
                if service.book.calls == ORDERS:
                    consumer.stop()

        consumer.run(handle)

    return ConsumerComparison(
        kafka=kafka.config,
        service=service,
        topic=topic,
        enriched=enriched,
        dead_letters=letters,
        partitions=PARTITIONS,
        run_parallel=run,
    )


def test_mode_parallel_makes_more_calls_at_a_time_than_there_are_partitions(scene: ConsumerComparison) -> None:
    told: list[str] = []
    found = scene.compare(ORDERS, SEQUENTIAL_ORDERS, ProgressLines(told.append))
    assert SEQUENTIAL_ORDERS - PARTITIONS < found.plain.calls <= SEQUENTIAL_ORDERS
    assert found.plain.at_once == PARTITIONS
    assert found.parallel.calls == ORDERS
    assert PARTITIONS < found.parallel.at_once <= 32
    assert (found.enriched, found.dead_letters) == (KNOWN, ORDERS - KNOWN)
    assert len(told) == 3
    record = next(read_to_end(scene.kafka, scene.enriched))
    order = json.loads(record.value() or b"")
    assert order["customer"]["id"].encode() == record.key()


def test_an_order_that_never_comes_out_is_noticed(scene: ConsumerComparison) -> None:
    with pytest.raises(VerificationFailed, match="5 orders have no output, first 0"):
        replace(scene, run_parallel=lambda: None).compare(5, 5, ProgressLines(print))


@pytest.mark.parametrize(
    ("value", "reason"),
    [(b"?", "not an order"), (b"{}", "not an order"), (b'{"customer": "nobody"}', "the service answered 404")],
)
def test_what_will_never_work_is_not_tried_again(service: SlowService, value: bytes, reason: str) -> None:
    with pytest.raises(TerminalFailure, match=reason):
        with_customer(ConsumedRecord("orders", 0, 7, b"c1", value))
