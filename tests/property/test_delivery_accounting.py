"""However a run is damaged, the accounting notices; however it is merely interleaved, it does not mind."""

from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from delivery.contract import Violation
from delivery.reference_transform import transform
from delivery.verification import DeadLetter, Feature, Raw, verify
from wasmline.dead_letters import ERROR, REASON, SOURCE_OFFSET, SOURCE_PARTITION
from wasmline.errors import VerificationFailed


@dataclass
class Run:
    raw: list[Raw]
    features: list[Feature]
    dead_letters: list[DeadLetter]


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Right runs: few ids, drivers and places, so that records repeat; a driver's records all in one partition."""
    run = Run([], [], [])
    offsets = {0: 0, 1: 0}
    for _ in range(draw(st.integers(1, 12))):
        driver = draw(st.sampled_from(["a", "b", "c"]))
        partition = ord(driver) % 2
        latitude = draw(st.sampled_from(["10.5", "-10.5", "0.0", "x"]))
        cells = [
            draw(st.sampled_from(["1", "2"])),
            driver,
            "30",
            "4.5",
            latitude,
            "70.1",
            "10.6",
            "70.2",
            "Meal ",
            "scooter ",
        ]
        raw = Raw(partition, offsets[partition], driver.encode(), ",".join([*cells, "20"]).encode())
        offsets[partition] += 1
        run.raw.append(raw)
        feature = transform(raw.value)
        if isinstance(feature, Violation):
            run.dead_letters.append(dead(raw, feature.reason))
        else:
            run.features.append(Feature(raw.key, feature))
    return run


def dead(raw: Raw, reason: str) -> DeadLetter:
    headers: dict[str, bytes | None] = {
        SOURCE_PARTITION: str(raw.partition).encode(),
        SOURCE_OFFSET: str(raw.offset).encode(),
        ERROR: b"Rejected",
        REASON: reason.encode(),
    }
    return DeadLetter(raw.key, raw.value, headers)


@given(run=runs(), seed=st.randoms(use_true_random=False))
def test_a_right_run_adds_up_in_whatever_order_keys_and_dead_letters_arrive(run: Run, seed: st.DataObject) -> None:
    keys = sorted({feature.key or b"" for feature in run.features})
    seed.shuffle(keys)  # type: ignore[attr-defined]
    seed.shuffle(run.dead_letters)  # type: ignore[attr-defined]
    features = [feature for key in keys for feature in run.features if feature.key == key]
    accounting = verify(run.raw, features, run.dead_letters)
    assert accounting.features + accounting.dead_letters == accounting.records_in == len(run.raw)


@given(run=runs(), data=st.data())
@settings(max_examples=200)
def test_a_lost_or_repeated_record_never_goes_unnoticed(run: Run, data: st.DataObject) -> None:
    stream: list[Feature] | list[DeadLetter] = data.draw(
        st.sampled_from([kind for kind in (run.features, run.dead_letters) if kind])
    )
    victim = data.draw(st.integers(0, len(stream) - 1))
    if data.draw(st.booleans()):
        stream.pop(victim)
    else:
        stream.append(stream[victim])  # type: ignore[arg-type]
    with pytest.raises(VerificationFailed):
        verify(run.raw, run.features, run.dead_letters)


@given(run=runs(), data=st.data())
def test_two_different_features_of_a_key_that_changed_places_never_go_unnoticed(run: Run, data: st.DataObject) -> None:
    pairs = [
        (first, second)
        for second in range(len(run.features))
        for first in range(second)
        if run.features[first].key == run.features[second].key and run.features[first] != run.features[second]
    ]
    assume(pairs)
    first, second = data.draw(st.sampled_from(pairs))
    run.features[first], run.features[second] = run.features[second], run.features[first]
    with pytest.raises(VerificationFailed):
        verify(run.raw, run.features, run.dead_letters)
