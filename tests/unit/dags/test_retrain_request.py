from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from delivery.retrain_request import RetrainRequest, retrain_request, skip_text

BERLIN = ZoneInfo("Europe/Berlin")
START, END = datetime(2026, 3, 28, 3, tzinfo=BERLIN), datetime(2026, 3, 29, 3, tzinfo=BERLIN)
FORM = {"since": "previous", "since_time": None}


def request(run_type: str, payloads: list[Any] | None = None, **params: Any) -> RetrainRequest:
    return retrain_request(run_type, start=START, end=END, payloads=payloads or [], params={**FORM, **params})


def test_a_scheduled_run_takes_what_is_new_up_to_the_end_of_its_interval_in_summer_time() -> None:
    made = request("scheduled")
    assert (made.since, made.until) == ("previous", "2026-03-29T03:00:00+02:00")
    assert made.why == "scheduled: 2026-03-28 03:00:00+01:00 to 2026-03-29 03:00:00+02:00"


def test_a_run_of_a_backfill_takes_its_own_interval() -> None:
    made = request("backfill")
    assert (made.since, made.until) == ("2026-03-28T03:00:00+01:00", "2026-03-29T03:00:00+02:00")


def test_a_run_of_events_takes_the_offsets_and_the_reasons_of_the_newest() -> None:
    reason = {"condition": "drift", "text": "age drifted", "figures": {"age": 0.4}}
    newest = {"observed_ms": 2, "until": {"0": 9, "1": 4}, "why": "age drifted", "reasons": [reason]}
    oldest = {"observed_ms": 1, "until": {"0": 5, "1": 2}, "why": "old", "reasons": []}
    made = request("asset_triggered", [newest, oldest])
    assert made == RetrainRequest(since="previous", until={"0": 9, "1": 4}, why="age drifted", reasons=[reason])


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "now",
        {"topic": "deliveries.features", "records": 5, "until": {"0": 5}},
    ],
    ids=["by hand", "text", "NewRecordsTrigger"],
)
def test_an_event_by_hand_or_of_another_trigger_starts_a_run_on_what_is_new(payload: Any) -> None:
    made = retrain_request("asset_triggered", start=None, end=None, payloads=[payload], params=FORM)
    assert made == RetrainRequest(since="previous", until="now", why="an asset event without reasons", reasons=[])
    reasoned = {"observed_ms": 1, "until": {"0": 9}, "why": "age drifted", "reasons": []}
    assert request("asset_triggered", [payload, reasoned]).until == {"0": 9}


@pytest.mark.parametrize(
    ("skipped", "since", "text"),
    [
        ({"reason": "t has 7 usable rows"}, "previous", "t has 7 usable rows. The live model stays, and the next run "),
        (
            {"reason": "t has 7 usable rows"},
            "2026-03-28T03:00+01:00",
            "the form takes them, since the topic's beginning",
        ),
        (None, "previous", "too few deliveries are new. The live model stays, and the next run takes them too"),
    ],
)
def test_a_skipped_run_says_why_and_which_run_takes_the_records(
    skipped: dict[str, Any] | None, since: str, text: str
) -> None:
    assert text in skip_text(skipped, since)


@pytest.mark.parametrize(
    ("params", "since"),
    [
        ({}, "previous"),
        ({"since": "beginning"}, "beginning"),
        ({"since": "beginning", "since_time": "2026-03-01T00:00:00Z"}, "2026-03-01T00:00:00Z"),
    ],
)
def test_a_run_of_the_form_takes_what_is_there_since_the_moment_it_names(params: dict[str, Any], since: str) -> None:
    made = retrain_request("manual", start=None, end=None, payloads=[], params={**FORM, **params})
    assert made == RetrainRequest(since=since, until="now", why="asked for in the form", reasons=[])
