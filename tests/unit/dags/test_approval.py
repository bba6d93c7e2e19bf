from typing import Any

import pytest

from delivery.approval import KEEP, PROMOTE, approval_text, approver, refusal
from wasmline.documents import plain
from wasmline.training import Decision, ErrorComparison, Interval, Metrics

METRICS = Metrics(
    rows=900,
    rmse=7.1,
    mae=5.6,
    r2=0.4,
    mean_rmse=9.3,
    holdout="sha256:aa",
    linear_rmse=8.0,
    forward_rows=300,
    forward_rmse=7.4,
)
BETTER = ErrorComparison(rows=900, rmse=7.1, champion_rmse=7.8, ratio=Interval(low=0.88, high=0.94, confidence=0.99))
DECISION = Decision(
    decision="promote",
    reason="better beyond noise",
    held_out=BETTER,
    segments={"vehicle=a|b": ErrorComparison(rows=12, rmse=6.0, champion_rmse=6.1, ratio=None)},
    forward=BETTER,
)


def trained(decision: Decision, champion: str | None) -> dict[str, Any]:
    return plain({"model": "eta", "version": "1.1.0", "champion": champion, "decision": decision, "metrics": METRICS})  # type: ignore[no-any-return]


def test_the_approver_sees_both_errors_on_all_rows_each_segment_and_the_newest_records() -> None:
    text = approval_text(trained(DECISION, "1.0.0"), "age drifted")
    assert "**eta@1.1.0** beside eta@1.0.0: better beyond noise." in text
    assert "Trained because: age drifted." in text
    assert "RMSE 7.100 min; mean predictor 9.300 min, linear 8.000 min." in text
    assert "Forward error 7.400 min" in text
    assert text.splitlines()[-5:] == [
        "| on | new model | live model | ratio | rows |",
        "| --- | --- | --- | --- | --- |",
        "| held-out rows | 7.100 min | 7.800 min | 0.880 to 0.940 | 900 |",
        "| vehicle=a\\|b | 6.000 min | 6.100 min | not tested | 12 |",
        "| newest records | 7.100 min | 7.800 min | 0.880 to 0.940 | 900 |",
    ]


def test_what_a_record_says_is_no_markup_of_the_question() -> None:
    hostile = r"a=s\| 4 \| ![](https://x.y) <b> **ok** `c` www.x.y a@x.y &lt;"
    figures = ErrorComparison(rows=99, rmse=6.0, champion_rmse=6.1, ratio=None)
    decision = Decision(decision="promote", reason=hostile, segments={hostile: figures})
    text = approval_text(trained(decision, "1.0.0"), hostile)
    shown = r"a=s\\\| 4 \\\| \!\[\](https\://x\.y) \<b\> \*\*ok\*\* \`c\` www\.x\.y a\@x\.y \&lt;"
    assert text.splitlines()[-1] == f"| {shown} | 6.000 min | 6.100 min | not tested | 99 |"
    assert f": {shown}.\n" in text
    assert f"Trained because: {shown}.\n" in text


def test_a_first_model_has_none_beside_it() -> None:
    text = approval_text(trained(Decision(decision="promote", reason="better than the mean"), None), "by hand")
    assert "beside no live model" in text
    assert "|" not in text


@pytest.mark.parametrize(
    ("answer", "why", "name"),
    [
        (None, "", ""),
        ({"chosen_options": [PROMOTE], "responded_by_user": {"id": "1", "name": "ada"}}, "", "ada"),
        ({"chosen_options": [KEEP], "responded_by_user": {"id": "1", "name": "ada"}}, "not approved by ada", "ada"),
        ({"chosen_options": [KEEP], "responded_by_user": None}, "not approved in time", ""),
    ],
)
def test_a_model_that_is_not_approved_says_by_whom(answer: dict[str, Any] | None, why: str, name: str) -> None:
    assert (refusal(answer), approver(answer)) == (why, name)
