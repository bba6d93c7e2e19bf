import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from delivery.contract import Violation
from delivery.generator import Defects, generate
from delivery.reference_transform import transform
from delivery.verification import DeadLetter, Feature, Raw, verify
from wasmline.dead_letters import ERROR, REASON, SOURCE_OFFSET, SOURCE_PARTITION
from wasmline.errors import VerificationFailed


@dataclass
class Run:
    raw: list[Raw] = field(default_factory=list)
    features: list[Feature] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)

    def add(self, raw: Raw) -> None:
        self.raw.append(raw)
        feature = transform(raw.value)
        if isinstance(feature, Violation):
            self.dead_letters.append(dead(raw, reason=feature.reason))
        else:
            self.features.append(Feature(raw.key, feature))


def dead(raw: Raw, *, error: str = "Rejected", reason: str = "because") -> DeadLetter:
    headers: dict[str, bytes | None] = {
        SOURCE_PARTITION: str(raw.partition).encode(),
        SOURCE_OFFSET: str(raw.offset).encode(),
        ERROR: error.encode(),
        REASON: reason.encode(),
    }
    return DeadLetter(raw.key, raw.value, headers)


@pytest.fixture
def run() -> Run:
    run = Run()
    for number, record in enumerate(generate(300, defects=Defects(flipped_sign=0.1, repeated_id=0.3))):
        run.add(Raw(0, number, record.key, record.value))
    return run


def offences(run: Run) -> set[str]:
    with pytest.raises(VerificationFailed) as caught:
        verify(run.raw, run.features, run.dead_letters)
    return set(caught.value.report["offences"])


def test_a_right_run_is_counted(run: Run) -> None:
    accounting = verify(run.raw, run.features, run.dead_letters)
    assert accounting.records_in == 300 == accounting.features + accounting.dead_letters
    assert accounting.reasons == {"a coordinate is negative": accounting.dead_letters}
    assert accounting.errors == {"Rejected": accounting.dead_letters}
    assert (accounting.duplicates, accounting.largest_deviation) == (0, 0.0)


def test_identical_records_are_each_accounted_for(run: Run) -> None:
    first = next(record for record in run.raw if not isinstance(transform(record.value), Violation))
    run.add(first._replace(offset=300))
    assert verify(run.raw, run.features, run.dead_letters).records_in == 301
    run.features.pop()
    assert offences(run) == {"missing"}


def lose_a_feature(run: Run) -> None:
    run.features.pop(7)


def lose_a_dead_letter(run: Run) -> None:
    run.dead_letters.pop()


def repeat_a_feature(run: Run) -> None:
    run.features.append(run.features[3])


def repeat_a_dead_letter(run: Run) -> None:
    run.dead_letters.append(run.dead_letters[0])


def invent_a_feature(run: Run) -> None:
    document = json.loads(run.features[0].value or b"")
    run.features.append(Feature(run.features[0].key, json.dumps({**document, "id": "?"}).encode()))


def invent_a_dead_letter(run: Run) -> None:
    run.dead_letters.append(dead(Raw(9, 9, b"k", b"v")))


def bend_a_distance(run: Run) -> None:
    document = json.loads(run.features[0].value or b"")
    document["distance_km"] *= 1 + 1e-8
    run.features[0] = run.features[0]._replace(value=json.dumps(document).encode())


def blank_a_distance(run: Run) -> None:
    document = json.loads(run.features[0].value or b"")
    run.features[0] = run.features[0]._replace(value=json.dumps({**document, "distance_km": None}).encode())


def break_a_feature(run: Run) -> None:
    run.features[0] = run.features[0]._replace(value=b'{"id": "A1"')


def change_a_dead_letter(run: Run) -> None:
    run.dead_letters[0] = run.dead_letters[0]._replace(value=b"other")


def take_a_reason(run: Run) -> None:
    run.dead_letters[0].headers.pop(REASON)  # type: ignore[attr-defined]


def reject_a_good_record(run: Run) -> None:
    good = next(number for number, raw in enumerate(run.raw) if not isinstance(transform(raw.value), Violation))
    run.dead_letters.append(dead(run.raw[good]))
    run.features.pop(0)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lose_a_feature, {"missing"}),
        (lose_a_dead_letter, {"missing dead letter"}),
        (repeat_a_feature, {"duplicate"}),
        (repeat_a_dead_letter, {"duplicate"}),
        (invent_a_feature, {"unknown feature"}),
        (invent_a_dead_letter, {"unknown dead letter"}),
        (bend_a_distance, {"wrong distance"}),
        (blank_a_distance, {"wrong distance"}),
        (break_a_feature, {"malformed feature", "missing"}),
        (change_a_dead_letter, {"changed dead letter"}),
        (take_a_reason, {"dead letter without a reason"}),
        (reject_a_good_record, {"wrongly rejected"}),
    ],
)
def test_each_way_of_going_wrong_is_named(run: Run, damage: Callable[[Run], None], found: set[str]) -> None:
    damage(run)
    assert offences(run) == found


def test_records_of_one_key_out_of_order_are_named() -> None:
    run = Run()
    for number, record in enumerate(generate(2)):
        run.add(Raw(0, number, b"driver", record.value))
    run.features.reverse()
    assert offences(run) == {"out of order"}


def test_records_of_different_keys_may_overtake_each_other(run: Run) -> None:
    run.features.sort(key=lambda feature: feature.key or b"")
    verify(run.raw, run.features, run.dead_letters)


def test_a_good_record_on_which_the_guest_failed_is_accounted_for(run: Run) -> None:
    good = next(raw for raw in run.raw if not isinstance(transform(raw.value), Violation))
    run.features.pop(0)
    run.dead_letters.append(dead(good, error="GuestTimeout", reason="3000 ms on record 17"))
    accounting = verify(run.raw, run.features, run.dead_letters)
    assert accounting.errors["GuestTimeout"] == 1
    assert accounting.reasons["GuestTimeout"] == 1


def test_repetitions_are_counted_where_a_failure_allows_them(run: Run) -> None:
    repeat_a_feature(run)
    repeat_a_dead_letter(run)
    assert verify(run.raw, run.features, run.dead_letters, duplicates_allowed=True).duplicates == 2


def test_the_error_shows_the_first_offenders_and_counts_all(run: Run) -> None:
    run.features.clear()
    with pytest.raises(
        VerificationFailed, match=r"records in do not add up .*missing, first partition 0 offset"
    ) as caught:
        verify(run.raw, run.features, run.dead_letters)
    offence = caught.value.report["offences"]["missing"]
    assert len(offence["first"]) == 5 < offence["count"]


def test_reasons_are_counted_by_their_category(run: Run) -> None:
    for number, letter in enumerate(run.dead_letters):
        text = f"flipped sign: restaurant_latitude is -{number}.5e-3"
        run.dead_letters[number] = letter._replace(headers={**letter.headers, REASON: text.encode()})
    reasons = verify(run.raw, run.features, run.dead_letters).reasons
    assert reasons == {"flipped sign": len(run.dead_letters)}
