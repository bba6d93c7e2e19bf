"""The status of retrain conditions: its key among those of jobs, and the live errors that it keeps."""

from __future__ import annotations

import pytest

from wasmline.control import RetrainCheck, RetrainStatus, model_of_retrain_status, retrain_status_key
from wasmline.control.job_keys import claim_key, launch_key, report_key, withdrawal_key
from wasmline.control.launcher_topic import launcher_status_key
from wasmline.control.retrain_status import MAX_LIVE_ERRORS, kept_live_errors
from wasmline.documents import decode, encode

STATUS = RetrainStatus(
    model="eta",
    topic="features",
    champion="1.9.0",
    new_records=812,
    checks=(
        RetrainCheck(condition="new records", text="812 new records, fewer than 2,000", is_met=False),
        RetrainCheck(condition="drift", text="drift is not measured", is_met=None),
    ),
    expected_rmse=4.0,
    live_rmse=4.5,
    age_s=60.0,
    observed_ms=1,
)


def test_a_status_is_read_back_and_says_its_checks_in_one_sentence() -> None:
    assert decode(RetrainStatus, encode(STATUS)) == STATUS
    assert STATUS.text == "812 new records, fewer than 2,000; drift is not measured"


def test_the_model_of_a_status_is_in_its_key_and_no_other_record_has_such_a_key() -> None:
    assert retrain_status_key("eta") == b"eta/retrain"
    assert model_of_retrain_status(b"eta/retrain") == "eta"
    job_keys = [
        b"retrain",
        claim_key("retrain"),
        claim_key("eta", "retrain"),
        withdrawal_key("eta"),
        launch_key("eta"),
        report_key("eta", "retrain"),
        launcher_status_key("retrain"),
        b"/retrain",
    ]
    assert [model_of_retrain_status(key) for key in job_keys] == [None] * len(job_keys)


def test_the_live_error_of_a_version_replaces_its_last_one_and_those_of_others_are_kept() -> None:
    assert kept_live_errors({}, STATUS) == {"1.9.0": 4.5}
    assert kept_live_errors({"1.9.0": 9.0, "1.8.0": 8.0}, STATUS) == {"1.8.0": 8.0, "1.9.0": 4.5}


@pytest.mark.parametrize("champion", [None, "1.9.0"])
def test_without_a_measurement_the_live_errors_stay(champion: str | None) -> None:
    before = {"1.8.0": 8.0, "1.9.0": 9.0}
    unmeasured = RetrainStatus(
        model="eta",
        topic="features",
        champion=champion,
        new_records=0,
        checks=(),
        expected_rmse=None,
        live_rmse=None,
        age_s=None,
        observed_ms=1,
    )
    assert kept_live_errors(before, unmeasured) == before


def test_of_many_versions_the_highest_and_the_champion_are_kept() -> None:
    before = {f"1.{minor}.0": float(minor) for minor in (*range(10, 100), 2, 1)} | {"no version": 0.0}
    kept = kept_live_errors(before, STATUS)
    assert len(kept) == MAX_LIVE_ERRORS
    assert (kept.pop("1.9.0"), min(kept.values()), max(kept.values())) == (4.5, 51.0, 99.0)
