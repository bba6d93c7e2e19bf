"""The dead letters of a deployment, as a stream of micro-batches and as the handler of a consumer."""

from wasmline import dead_letters
from wasmline.consumer import ConsumedRecord, ConsumerOptions, Output, ParallelConsumer
from wasmline.consumer.backends.memory import MemoryBackend, MemoryCluster
from wasmline.control import Deployment, DeploymentSpec
from wasmline.pipeline import BatchStats, TransformRunner
from wasmline.pipeline.transform_handler import TransformHandler
from wasmline.record_batches import record_batch
from wasmline.registry import digest_of
from wasmline.testing import guests
from wasmline.wasm import TransformRuntime

REJECTED, TRAPS, FINE = KEYS = (b"r", b"t", b"a")
HEADERS = [("h", b"1"), ("none", None)]
REJECTS = guests.when_key("r", guests.write_to(guests.topic("dlq")))
FAILS = guests.when_key("t", guests.TRAP)
GUEST = guests.guest(REJECTS + FAILS + guests.WRITE, abi=2)
SPEC = DeploymentSpec(
    name="t",
    version="1.0.0",
    digest=digest_of(GUEST),
    input_topic="in",
    output_topics=("out", "dlq"),
    dead_letter_topic="dlq",
)

Letter = tuple[bytes | None, bytes | None, list[dead_letters.Header]]


def of_a_consumer() -> list[Letter]:
    cluster = MemoryCluster()
    for topic in ("in", "out", "dlq"):
        cluster.create(topic)
    for key in KEYS:
        cluster.write(Output("in", b"value", key, HEADERS))
    handler = TransformHandler(SPEC, GUEST)
    options = ConsumerOptions(
        topics=("in",),
        group_id="g",
        batch_size=10,
        max_concurrency=1,
        dead_letter_topic="dlq",
        dead_letter_headers=handler.origin,
    )
    consumer = ParallelConsumer(options, MemoryBackend(cluster, options))
    made = handler.make()

    class StopsAtTheEnd:
        """Drains the consumer with its first call."""

        def make(self) -> object:
            return self

        def __call__(self, records: list[ConsumedRecord]) -> object:
            consumer.stop()
            return made(records)

        def close(self) -> None:
            made.close()

    consumer.run(StopsAtTheEnd())  # type: ignore[arg-type]
    return [(each.key, each.value, list(each.headers)) for each in cluster.records("dlq")]


def of_micro_batches() -> list[Letter]:
    deployment = Deployment(spec=SPEC, generation=1, state="running", updated_ms=0)
    instance = TransformRuntime().compile(GUEST).instantiate(SPEC.context(), SPEC.limits())
    count = len(KEYS)
    batch = record_batch(
        keys=KEYS,
        values=[b"value"] * count,
        headers=[HEADERS] * count,
        timestamps=[0] * count,
        partitions=[0] * count,
        offsets=range(count),
    )
    rows = [row for part in TransformRunner(deployment, instance, BatchStats()).run(batch) for row in part.to_pylist()]
    instance.close()
    return [
        (row["key"], row["value"], [(header["key"], header["value"]) for header in row["headers"]])
        for row in rows
        if row["topic"] == "dlq"
    ]


def test_a_failure_has_the_same_headers_wherever_its_record_ran() -> None:
    consumed, streamed = of_a_consumer(), of_micro_batches()
    assert [key for key, _, _ in streamed] == [REJECTED, TRAPS]
    assert sorted(consumed) == sorted(streamed)
    names = {key: [name for name, _ in headers] for key, _, headers in streamed}
    added = [
        dead_letters.TRANSFORM,
        dead_letters.MODULE,
        dead_letters.SOURCE_TOPIC,
        dead_letters.SOURCE_PARTITION,
        dead_letters.SOURCE_OFFSET,
    ]
    assert names[TRAPS] == ["h", "none", dead_letters.ERROR, dead_letters.REASON, *added]
    assert names[REJECTED] == ["h", "none", dead_letters.ERROR, *added]


def test_a_truncated_dead_letter_keeps_what_describes_its_failure() -> None:
    given = [("h", b"1"), (dead_letters.REASON, b"bad"), (dead_letters.ERROR, b"Rejected")]
    letter = dead_letters.DeadLetter(b"k" * 1_025, b"value", given, [(dead_letters.MODULE, b"sha256:")])
    assert letter.headers == [*given, (dead_letters.MODULE, b"sha256:")]
    assert letter.truncated(1_030) == (
        None,
        None,
        given[1:],
        [(dead_letters.MODULE, b"sha256:"), (dead_letters.TRUNCATED, b"1030")],
    )
