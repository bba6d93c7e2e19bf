import hashlib
import json
from collections import Counter

import numpy as np
import pytest

from delivery.contract import COLUMNS, Delivery, Violation, fields, parse, read
from delivery.generator import DAY_MS, MINUTE_MS, OFFSETS, Defects, Drift, generate
from delivery.reference_transform import transform
from delivery.source_records import START_MS, Source


@pytest.fixture(scope="module")
def made() -> list[Source]:
    return list(generate())


@pytest.fixture(scope="module")
def deliveries(made: list[Source]) -> list[Delivery]:
    return [delivery for delivery in (parse(record.value) for record in made) if isinstance(delivery, Delivery)]


def share(number: int, made: list[Source]) -> float:
    return number / len(made)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    assert list(generate(500, seed=3)) == list(generate(500, seed=3))
    assert list(generate(500, seed=3)) != list(generate(500, seed=4))


def test_there_are_as_many_rows_as_in_the_real_export_each_with_its_columns(made: list[Source]) -> None:
    assert len(made) >= 45_593
    assert all(record.value.count(b",") == len(COLUMNS) - 1 for record in made)


def test_the_key_is_the_driver_and_time_goes_on(made: list[Source]) -> None:
    assert all(record.key == record.value.split(b",")[1] for record in made)
    assert len({record.key for record in made}) == 1_320
    times = [record.timestamp_ms for record in made]
    assert times[0] == START_MS
    assert all(np.diff(times) > 0)


def test_about_one_row_in_a_hundred_has_a_negative_restaurant_and_only_those_break_the_contract(
    made: list[Source], deliveries: list[Delivery]
) -> None:
    broken = sum(isinstance(read(record.value), Violation) for record in made)
    latitude = sum(delivery.restaurant[0] < 0 for delivery in deliveries)
    both = sum(max(delivery.restaurant) < 0 for delivery in deliveries)
    assert share(broken, made) == pytest.approx(0.0095, abs=0.002)
    assert latitude == broken > both > 0
    assert all(min(delivery.destination) > 0 for delivery in deliveries)


def test_about_eight_rows_in_a_hundred_have_a_restaurant_at_zero(
    made: list[Source], deliveries: list[Delivery]
) -> None:
    zero = [delivery for delivery in deliveries if delivery.restaurant == (0, 0)]
    assert share(len(zero), made) == pytest.approx(0.08, abs=0.01)
    assert {delivery.destination[0] for delivery in zero} <= set(OFFSETS.tolist())


def test_destinations_are_one_of_twelve_offsets_away(deliveries: list[Delivery]) -> None:
    whole = [delivery for delivery in deliveries if min(delivery.restaurant) >= 0]
    found = {
        (round(one.destination[0] - one.restaurant[0], 6), round(one.destination[1] - one.restaurant[1], 6))
        for one in whole
    }
    assert found == {(offset, offset) for offset in OFFSETS.tolist()}


def test_ages_and_ratings_out_of_range_are_rare_and_there(made: list[Source], deliveries: list[Delivery]) -> None:
    facts = Counter((delivery.age, delivery.rating) for delivery in deliveries)
    assert share(facts[50, 6], made) == pytest.approx(0.0012, abs=0.0006)
    assert share(facts[15, 1], made) == pytest.approx(0.0008, abs=0.0006)
    usual = [delivery for delivery in deliveries if (delivery.age, delivery.rating) not in {(50, 6), (15, 1)}]
    assert {delivery.age for delivery in usual} == set(range(20, 40))
    assert {delivery.rating for delivery in usual} == {tenths / 10 for tenths in range(25, 51)}


def test_times_are_whole_minutes_between_ten_and_fifty_four(deliveries: list[Delivery]) -> None:
    assert {delivery.time_min for delivery in deliveries} == set(range(10, 55))


def test_texts_end_in_a_blank_some_ids_hold_a_no_break_space_and_some_occur_twice(made: list[Source]) -> None:
    cells = [record.value.split(b",") for record in made]
    assert all(row[8].endswith(b" ") and row[9].endswith(b" ") for row in cells)
    assert sum("\u00a0".encode() in row[0] for row in cells) == pytest.approx(105, abs=50)
    assert len(cells) - len({row[0] for row in cells}) == pytest.approx(142, abs=50)


def test_without_defects_every_row_keeps_the_contract_and_has_an_id_of_its_own() -> None:
    none = Defects(flipped_sign=0, near_zero=0, too_good=0, too_young=0, repeated_id=0, no_break_space=0)
    values = [record.value for record in generate(2_000, defects=none)]
    assert not any(isinstance(read(value), Violation) for value in values)
    assert len({fields(value)[0] for value in values}) == 2_000


def test_the_default_run_is_the_same_in_every_release(made: list[Source]) -> None:
    digest = hashlib.sha256(b"\n".join(b"%s %s %d" % (each.key, each.value, each.timestamp_ms) for each in made))
    assert digest.hexdigest() == "62500d9be343a9c907df65c086d96c703f0690418f398cd7a7020dde9112642c"


def test_the_last_delivery_can_be_ordered_at_a_given_moment_and_nothing_else_changes() -> None:
    end_ms = 1_800_000_000_000
    usual, recent = list(generate(500)), list(generate(500, end_ms=end_ms))
    assert [(each.key, each.value) for each in recent] == [(each.key, each.value) for each in usual]
    assert recent[-1].timestamp_ms == end_ms
    assert {new.timestamp_ms - old.timestamp_ms for new, old in zip(recent, usual, strict=True)} == {
        end_ms - usual[-1].timestamp_ms
    }


def test_from_a_day_on_deliveries_take_longer_most_of_all_those_of_low_rated_drivers() -> None:
    usual, drifted = (list(generate(6_000, drift=drift)) for drift in (None, Drift(day=2)))
    added: dict[tuple[bool, bool], set[float]] = {}
    for before, after in zip(usual, drifted, strict=True):
        (*others, old), (*same, new) = fields(before.value), fields(after.value)
        assert others == same
        late = before.timestamp_ms - START_MS >= 2 * DAY_MS
        added.setdefault((late, float(others[3]) < 4.5), set()).add(float(new) - float(old))
    assert added == {(False, False): {0}, (False, True): {0}, (True, False): {4}, (True, True): {8}}


def test_a_drift_from_the_first_day_on_holds_for_all_and_days_before_it_are_rejected() -> None:
    usual, drifted = (list(generate(100, drift=drift)) for drift in (None, Drift(day=0)))
    assert all(old.value != new.value for old, new in zip(usual, drifted, strict=True))
    with pytest.raises(ValueError, match="day must be at least 0, got -1"):
        Drift(day=-1)


def test_late_labels_come_in_a_record_of_their_own_when_the_delivery_has_arrived() -> None:
    none = Defects(repeated_id=0)
    usual, late = (list(generate(500, defects=none, late_labels=labels)) for labels in (False, True))
    times = [each.timestamp_ms for each in late]
    assert times == sorted(times)
    ordered = [each for each in late if each.value.endswith(b",")]
    assert [(each.key, each.value, each.timestamp_ms) for each in ordered] == [
        (each.key, each.value.rpartition(b",")[0] + b",", each.timestamp_ms) for each in usual
    ]
    arrived = {fields(each.value)[0]: each for each in late if not each.value.endswith(b",")}
    assert len(arrived) == len(usual)
    for each in usual:
        identity, *_, minutes = fields(each.value)
        assert arrived[identity].value == each.value
        assert arrived[identity].timestamp_ms == each.timestamp_ms + int(minutes) * MINUTE_MS


def test_late_labels_become_features_without_a_time_and_later_with_it() -> None:
    defects = Defects(repeated_id=0, flipped_sign=0)
    seen: dict[str, list[object]] = {}
    for each in generate(200, defects=defects, late_labels=True):
        feature = transform(each.value)
        assert isinstance(feature, bytes)
        document = json.loads(feature)
        seen.setdefault(document["id"], []).append(document["time_min"])
    assert len(seen) == 200
    assert all(first is None and isinstance(later, float) for first, later in seen.values())
