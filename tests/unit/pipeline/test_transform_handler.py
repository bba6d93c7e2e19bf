"""A deployment as a handler: what a batch of many keys becomes, and who is to blame for what fails."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from wasmline import dead_letters
from wasmline.consumer import BatchResult, ConsumedRecord, HandlerFactory
from wasmline.control import DeploymentSpec
from wasmline.errors import GuestTrap, HandlerBroken, InstanceClosed, InvalidBatch, InvalidModule, TooManyFailures
from wasmline.pipeline.record_sizes import batch_bytes
from wasmline.pipeline.transform_handler import TransformHandler
from wasmline.registry import digest_of
from wasmline.testing import guests

Run = Callable[..., BatchResult]

TRAPS_ON_X = guests.guest(guests.when_key("x", guests.TRAP) + guests.WRITE)


def spec(wasm: bytes, **chosen: object) -> DeploymentSpec:
    fields = {"output_topics": ("out", "other"), "dead_letter_topic": "dlq", **chosen}
    return DeploymentSpec(name="t", version="1.0.0", digest=digest_of(wasm), input_topic="in", **fields)  # type: ignore[arg-type]


def records(*keys: bytes, first: int = 100) -> list[ConsumedRecord]:
    return [
        ConsumedRecord("in", 2, first + row, key, b"value %d" % row, [("h", b"%d" % row), ("none", None)], 1_000 + row)
        for row, key in enumerate(keys)
    ]


@pytest.fixture
def run() -> Iterator[Run]:
    """Run records through a module, in a handler of this thread's own that is closed when the test ends."""
    made = []

    def through(wasm: bytes, given: list[ConsumedRecord], **chosen: object) -> BatchResult:
        made.append(TransformHandler(spec(wasm, **chosen), wasm).make())
        return made[-1](given)

    yield through
    for handler in made:
        handler.close()


def test_an_engine_gives_each_thread_its_own() -> None:
    wasm = guests.guest()
    handler = TransformHandler(spec(wasm), wasm)
    assert isinstance(handler, HandlerFactory)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: handler.make(), range(2))
        assert len(first(records(b"a")).outputs) == len(second(records(b"b")).outputs) == 1
    first.close()
    with pytest.raises(HandlerBroken) as raised:
        first(records(b"a"))
    assert isinstance(raised.value.__cause__, InstanceClosed)
    assert len(second(records(b"b")).outputs) == 1
    second.close()


def test_outputs_keep_what_their_inputs_had_and_say_which_they_are_of(run: Run) -> None:
    given = records(b"a", b"b", b"a")
    outcome = run(guests.guest(guests.WRITE + guests.WRITE), given)
    assert outcome.rows == [0, 0, 1, 1, 2, 2]
    assert [(each.topic, each.key, each.value, each.timestamp, each.partition) for each in outcome.outputs] == [
        ("out", record.key, record.value, record.timestamp, None) for record in given for _ in range(2)
    ]
    assert [list(each.headers)[:2] for each in outcome.outputs] == [record.headers for record in given for _ in "12"]
    origin = digest_of(guests.guest(guests.WRITE + guests.WRITE))[7:19]
    assert [each.headers[2:] for each in outcome.outputs] == [
        [("wasmline.provenance", f"in 2 {offset} t@1.0.0 {origin}".encode())]
        for offset in (100, 101, 102)
        for _ in "12"
    ]
    assert outcome.failures == {}


def test_records_without_key_value_or_headers_stay_without(run: Run) -> None:
    given = [ConsumedRecord("in", 0, 0, None, None), *records(b"a"), ConsumedRecord("in", 0, 101, b"", b"")]
    outcome = run(guests.guest(), given, provenance=False)
    written = [(each.key, each.value, list(each.headers)) for each in outcome.outputs]
    assert written == [(record.key, record.value, list(record.headers)) for record in given]


def test_an_output_goes_to_the_topic_that_the_guest_named(run: Run) -> None:
    outcome = run(guests.guest(guests.write_to(guests.topic("other")), abi=2), records(b"a"))
    assert [each.topic for each in outcome.outputs] == ["other"]


def test_a_filtered_record_is_done_without_outputs(run: Run) -> None:
    assert run(guests.guest(""), records(b"a", b"b")) == BatchResult([], {}, [])


def test_a_record_that_traps_fails_alone(run: Run) -> None:
    outcome = run(TRAPS_ON_X, records(b"a", b"x", b"b"))
    assert [each.key for each in outcome.outputs] == [b"a", b"b"]
    assert outcome.rows == [0, 2]
    assert list(outcome.failures) == [1]
    assert isinstance(outcome.failures[1], GuestTrap)
    assert outcome.failures[1].offset == 101


def test_a_record_that_the_guest_rejects_gains_its_source_and_its_module(run: Run) -> None:
    wasm = guests.guest(guests.when_key("x", guests.write_to(guests.topic("dlq"))) + guests.WRITE, abi=2)
    outcome = run(wasm, records(b"a", b"x"), output_topics=("out", "dlq"))
    assert [(each.topic, each.key) for each in outcome.outputs] == [("out", b"a"), ("dlq", b"x"), ("out", b"x")]
    assert list(outcome.outputs[0].headers)[:-1] == [("h", b"0"), ("none", None)]
    assert list(outcome.outputs[1].headers) == [
        ("h", b"1"),
        ("none", None),
        (dead_letters.ERROR, b"Rejected"),
        (dead_letters.TRANSFORM, b"t@1.0.0"),
        (dead_letters.MODULE, digest_of(wasm).encode()),
        (dead_letters.SOURCE_TOPIC, b"in"),
        (dead_letters.SOURCE_PARTITION, b"2"),
        (dead_letters.SOURCE_OFFSET, b"101"),
    ]


@pytest.mark.parametrize("provenance", [True, False])
def test_a_provenance_header_that_a_guest_copies_never_leaves(run: Run, provenance: bool) -> None:
    forged = ConsumedRecord("in", 2, 7, b"x", b"", [("wasmline.provenance", b"forged"), ("h", None)] * 2)
    wasm = guests.guest(guests.write_to(guests.topic("dlq")) + guests.WRITE, abi=2)
    written = run(wasm, [forged], output_topics=("out", "dlq"), provenance=provenance).outputs
    ours = [("wasmline.provenance", f"in 2 7 t@1.0.0 {digest_of(wasm)[7:19]}".encode())] if provenance else []
    assert [each.topic for each in written] == ["dlq", "out"]
    assert "wasmline.provenance" not in dict(written[0].headers)
    assert list(written[1].headers) == [("h", None), ("h", None), *ours]


def test_an_output_that_fits_only_without_its_provenance_is_written_without() -> None:
    wasm, value = guests.guest(), b"v" * 1_000
    for limit, expected in ((batch_bytes(b"k", value, ()), []), (1_300, ["wasmline.provenance"])):
        handler = TransformHandler(spec(wasm), wasm, {"out": limit}).make()
        small, large = handler([ConsumedRecord("in", 0, 0, b"k", b""), ConsumedRecord("in", 0, 1, b"k", value)]).outputs
        assert [name for name, _ in small.headers] == ["wasmline.provenance"]
        assert [name for name, _ in large.headers] == expected
        handler.close()


def test_more_failures_than_allowed_are_the_modules_fault(run: Run) -> None:
    with pytest.raises(HandlerBroken, match=r"^t@1\.0\.0 is at fault, not its records: 60 of 100 ") as raised:
        run(TRAPS_ON_X, records(*[b"x"] * 60, *[b"a"] * 40))
    assert isinstance(raised.value.__cause__, TooManyFailures)


def test_failures_of_all_threads_are_judged_together() -> None:
    handler = TransformHandler(spec(TRAPS_ON_X), TRAPS_ON_X)
    first, second = handler.make(), handler.make()
    assert len(first(records(*[b"x"] * 60)).failures) == 60
    with pytest.raises(HandlerBroken):
        second(records(*[b"a"] * 40))
    first.close()
    second.close()


def test_records_that_make_too_much_together_are_to_be_tried_alone() -> None:
    wasm = guests.guest(guests.WRITE * 100)
    handler = TransformHandler(spec(wasm), wasm, max_output_bytes=10_000).make()
    with pytest.raises(InvalidBatch, match="the outputs of 30 records take more than 10000 bytes"):
        handler(records(*[b"a"] * 30))
    assert len(handler(records(b"a" * 1_000)).outputs) == 100
    handler.close()


def test_a_module_that_cannot_start_gets_no_record() -> None:
    wasm = guests.guest(on_start=guests.TRAP)
    with pytest.raises(GuestTrap):
        TransformHandler(spec(wasm), wasm)
    with pytest.raises(InvalidModule):
        TransformHandler(spec(b"no module"), b"no module")


def test_what_the_guest_says_is_logged_under_its_name(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wasmline.pipeline.transform_handler")
    run(guests.guest(guests.log("careful\n", 2) + guests.log("fine", 1)), records(b"a"))
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("WARNING", "t: careful"),
        ("INFO", "t: fine"),
    ]


def test_what_a_guest_says_obeys_nothing_in_a_log(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run(guests.guest(guests.log("one\n\ttwo\x1b[2J\n")), records(b"a"))
    assert caplog.records[0].message == "t: one\n\ttwo\\u001b[2J"


def test_log_lines_over_the_limit_are_counted(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run(guests.guest(guests.log("x" * 60)), records(*[b"a"] * 2_000))
    assert caplog.records[-1].message.endswith("more lines exceeded the log limit")
