import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wasmline.documents import plain
from wasmline.errors import (
    Conflict,
    InvalidArtifact,
    InvalidLayout,
    InvalidReference,
    UnsupportedSpecVersion,
    VersionNotFound,
)
from wasmline.training import Decision, Metrics, ModelRecord, ModelRegistry, Promotion, PromotionLog, promote
from wasmline.training.gate import ErrorComparison
from wasmline.training.stored_documents import stored_document

PROMOTE = Decision(decision="promote", reason="better")
KEEP = Decision(decision="keep", reason="worse")
DENIED = replace(KEEP, refusal="user")


@pytest.fixture
def url(tmp_path: Path, record: ModelRecord) -> str:
    models = ModelRegistry(str(tmp_path / "models"))
    for number in range(3):
        models.publish(record, b"%d" % number)
    return models.url


@pytest.fixture
def log(url: str) -> PromotionLog:
    return PromotionLog(url)


def test_nothing_is_live_before_the_first_decision(log: PromotionLog) -> None:
    assert log.champion("eta") is None
    assert log.history("eta") == []


def test_the_champion_is_the_last_one_promoted_and_every_decision_is_kept(log: PromotionLog, metrics: Metrics) -> None:
    worse = replace(metrics, rmse=8.0)
    log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    log.append("eta", "1.1.0", KEEP, champion="1.0.0", metrics=worse, champion_metrics=metrics)
    assert log.champion("eta") == "1.0.0"
    log.append("eta", "1.2.0", PROMOTE, champion="1.0.0", metrics=metrics, champion_metrics=worse, run="r3")
    assert log.champion("eta") == "1.2.0"
    history = log.history("eta")
    assert [(one.number, one.version, one.decision, one.live) for one in history] == [
        (1, "1.0.0", "promote", "1.0.0"),
        (2, "1.1.0", "keep", "1.0.0"),
        (3, "1.2.0", "promote", "1.2.0"),
    ]
    assert (history[2].reason, history[2].run, history[2].champion_metrics) == ("better", "r3", worse)


@pytest.fixture
def improved(log: PromotionLog, metrics: Metrics) -> PromotionLog:
    """Two champions, one after the other."""
    log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    log.append("eta", "1.1.0", PROMOTE, champion="1.0.0", metrics=metrics)
    return log


def test_a_rollback_is_one_more_decision_with_its_reason_and_its_user(improved: PromotionLog, metrics: Metrics) -> None:
    made = improved.roll_back("eta", "1.0.0", champion="1.1.0", reason="late orders", by="ada", run="r1")
    assert improved.champion("eta") == "1.0.0"
    assert improved.history("eta")[2:] == [made]
    assert (made.number, made.decision, made.version, made.champion) == (3, "rollback", "1.0.0", "1.1.0")
    assert (made.reason, made.by, made.run, made.spec_version) == ("late orders", "ada", "r1", 2)
    assert (made.metrics, made.champion_metrics) == (metrics, metrics)


def test_what_follows_a_rollback_is_decided_against_its_version(improved: PromotionLog, metrics: Metrics) -> None:
    improved.roll_back("eta", "1.0.0", champion="1.1.0", reason="late orders")
    with pytest.raises(Conflict, match=r"1\.0\.0 is live, not 1\.1\.0"):
        improved.append("eta", "1.2.0", PROMOTE, champion="1.1.0", metrics=metrics)
    kept = improved.append("eta", "1.2.0", KEEP, champion="1.0.0", metrics=metrics)
    assert (kept.live, kept.spec_version) == ("1.0.0", 1)


def test_a_rollback_against_another_champion_than_the_live_one_is_a_conflict(improved: PromotionLog) -> None:
    improved.roll_back("eta", "1.0.0", champion="1.1.0", reason="late orders")
    with pytest.raises(Conflict, match=r"1\.0\.0 is live, not 1\.1\.0"):
        improved.roll_back("eta", "1.0.0", champion="1.1.0", reason="mine")
    assert len(improved.history("eta")) == 3


def test_the_same_run_rolls_back_once(improved: PromotionLog) -> None:
    first = improved.roll_back("eta", "1.0.0", champion="1.1.0", reason="late orders", run="r1")
    assert improved.roll_back("eta", "1.0.0", champion="1.1.0", reason="late orders", run="r1") == first
    assert improved.history("eta")[2:] == [first]


def test_a_champion_that_the_registry_lacks_can_be_rolled_back(url: str, improved: PromotionLog) -> None:
    shutil.rmtree(Path(url) / "models/eta/1.1.0")
    made = improved.roll_back("eta", "1.0.0", champion="1.1.0", reason="it was removed")
    assert made.champion_metrics is None
    assert improved.champion("eta") == "1.0.0"


@pytest.mark.parametrize(
    ("version", "champion", "reason", "told"),
    [("1.1.0", "1.1.0", "why", "changes no champion"), ("1.0.0", "1.1.0", " ", "needs a reason")],
)
def test_a_rollback_that_is_none_is_not_recorded(
    improved: PromotionLog, version: str, champion: str, reason: str, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        improved.roll_back("eta", version, champion=champion, reason=reason)
    assert len(improved.history("eta")) == 2


def test_an_earlier_release_says_that_it_cannot_read_a_rollback(improved: PromotionLog) -> None:
    document = plain(improved.roll_back("eta", "1.0.0", champion="1.1.0", reason="late orders"))
    with pytest.raises(UnsupportedSpecVersion, match="of spec version 2, and this release reads 1"):
        stored_document(Promotion, document, "promotions/eta/000003", newest=1)


def test_decisions_of_the_first_release_are_read_unchanged(url: str, log: PromotionLog, metrics: Metrics) -> None:
    decision = plain(log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics, run="r1"))
    del decision["by"]
    forge(url, decision, {})
    [read] = log.history("eta")
    assert plain(read) == {**decision, "by": ""}


def test_a_decision_against_another_champion_than_the_live_one_is_refused(log: PromotionLog, metrics: Metrics) -> None:
    log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    with pytest.raises(Conflict, match=r"1\.0\.0 is live, not nothing"):
        log.append("eta", "1.1.0", PROMOTE, champion=None, metrics=metrics)
    assert log.champion("eta") == "1.0.0"


def test_a_repeated_task_records_its_decision_once(url: str, metrics: Metrics) -> None:
    first = promote(url, "eta", "1.0.0", PROMOTE, champion=None, metrics=metrics, run="run-1")
    assert promote(url, "eta", "1.0.0", PROMOTE, champion=None, metrics=metrics, run="run-1") == first
    assert PromotionLog(url).history("eta") == [first]


def test_a_user_may_think_again_more_than_once_until_the_version_is_live(
    improved: PromotionLog, metrics: Metrics
) -> None:
    for decision in (DENIED, DENIED, KEEP, DENIED, PROMOTE, PROMOTE):
        improved.append("eta", "1.2.0", decision, champion="1.1.0", metrics=metrics, run="r")
    kinds = [(each.decision, each.refusal) for each in improved.history("eta")[2:]]
    assert kinds == [("keep", "user"), ("keep", ""), ("keep", "user"), ("promote", "")]
    with pytest.raises(Conflict, match=r"1\.2\.0 is live already: to take it back, run wasmline models rollback eta"):
        improved.append("eta", "1.2.0", DENIED, champion="1.1.0", metrics=metrics, run="r")
    improved.roll_back("eta", "1.1.0", champion="1.2.0", reason="late orders")
    assert improved.append("eta", "1.2.0", DENIED, champion="1.1.0", metrics=metrics, run="r").live == "1.1.0"
    with pytest.raises(Conflict, match=r"1\.2\.0 is the model that decision 7 rolled back"):
        improved.append("eta", "1.2.0", PROMOTE, champion="1.1.0", metrics=metrics, run="r")


@pytest.mark.parametrize("decision", [PROMOTE, KEEP, DENIED])
def test_a_run_finds_its_decision_again_though_others_kept_the_champion(
    improved: PromotionLog, metrics: Metrics, decision: Decision
) -> None:
    made = improved.append("eta", "1.2.0", decision, champion="1.1.0", metrics=metrics, run="r1")
    improved.append("eta", "1.0.0", KEEP, champion=made.live, metrics=metrics, run="r2")
    assert improved.append("eta", "1.2.0", decision, champion="1.1.0", metrics=metrics, run="r1") == made
    assert len(improved.history("eta")) == 4


@pytest.mark.parametrize("decision", [KEEP, DENIED])
def test_a_keep_is_recorded_beside_whichever_champion_is_live_without_figures_of_another(
    improved: PromotionLog, metrics: Metrics, decision: Decision
) -> None:
    figures = ErrorComparison(rows=9, rmse=2.0, champion_rmse=1.0, ratio=None)
    measured = replace(decision, held_out=figures, segments={"kind=a": figures}, forward=figures)
    made = improved.append(
        "eta", "1.2.0", measured, champion="1.0.0", metrics=metrics, champion_metrics=metrics, run="r"
    )
    assert (made.decision, made.champion, made.live, made.refusal) == ("keep", "1.1.0", "1.1.0", decision.refusal)
    assert (made.metrics, made.champion_metrics) == (metrics, None)
    assert (made.held_out, made.segments, made.forward) == (None, {}, None)
    assert made.reason == "worse (compared with 1.0.0, before 1.1.0 was live)"


def test_a_version_with_the_bytes_of_one_that_was_rolled_back_is_not_promoted(
    url: str, improved: PromotionLog, record: ModelRecord, metrics: Metrics
) -> None:
    again = ModelRegistry(url).publish(replace(record, window="all"), b"1").version
    improved.roll_back("eta", "1.0.0", champion="1.1.0", reason="late orders")
    for version in ("1.1.0", again):
        with pytest.raises(Conflict, match=f"{version} is the model that decision 3 rolled back"):
            improved.append("eta", version, PROMOTE, champion="1.0.0", metrics=metrics)
    assert improved.append("eta", "1.2.0", PROMOTE, champion="1.0.0", metrics=metrics).live == "1.2.0"
    shutil.rmtree(Path(url) / "models/eta/1.1.0")
    assert improved.rolled_back("eta", again) == "", "its bytes are not known any more"


def test_a_version_that_does_not_exist_cannot_be_promoted(log: PromotionLog, metrics: Metrics) -> None:
    with pytest.raises(VersionNotFound):
        log.append("eta", "7.0.0", PROMOTE, champion=None, metrics=metrics)


def test_a_champion_that_the_registry_lacks_is_named_with_its_decision(
    url: str, log: PromotionLog, metrics: Metrics
) -> None:
    log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    shutil.rmtree(Path(url) / "models/eta/1.0.0")
    with pytest.raises(VersionNotFound, match=r"no eta@1\.0\.0 in .*, which is live by promotions/eta/000001: restore"):
        log.champion("eta")
    log.append("eta", "1.1.0", PROMOTE, champion="1.0.0", metrics=metrics)
    assert log.champion("eta") == "1.1.0"


def test_of_many_deciders_at_once_one_wins_and_the_others_get_a_conflict(url: str, metrics: Metrics) -> None:
    start = threading.Barrier(8)
    outcomes: list[str] = []

    def decide() -> None:
        log = PromotionLog(url)
        start.wait()
        try:
            log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
            outcomes.append("won")
        except Conflict:
            outcomes.append("lost")

    threads = [threading.Thread(target=decide) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["lost"] * 7 + ["won"]
    assert len(PromotionLog(url).history("eta")) == 1


def test_of_many_keeps_at_once_each_is_recorded(url: str, metrics: Metrics) -> None:
    start = threading.Barrier(8)

    def decide(number: int) -> int:
        log = PromotionLog(url)
        start.wait()
        return log.append("eta", "1.0.0", KEEP, champion=None, metrics=metrics, run=f"r{number}").number

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(decide, range(8))) == list(range(1, 9))


def test_folders_that_are_not_of_decisions_are_passed_over(url: str, log: PromotionLog, metrics: Metrics) -> None:
    first = log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    for name in ("notes", "0000001", "-00001", "9" * 200, "\N{ARABIC-INDIC DIGIT ONE}" * 6):
        (Path(url) / "promotions/eta" / name).mkdir()
        (Path(url) / "promotions/eta" / name / "promotion.json").write_text("{}")
    assert log.history("eta") == [first]


def test_a_decision_that_was_copied_to_another_number_or_model_is_refused(
    url: str, log: PromotionLog, metrics: Metrics
) -> None:
    log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    promotions = Path(url) / "promotions"
    shutil.copytree(promotions / "eta/000001", promotions / "eta/000002")
    shutil.copytree(promotions / "eta/000001", promotions / "other/000001")
    with pytest.raises(
        InvalidLayout, match=r"promotions/eta/000002/promotion\.json in .* contains decision 1 of 'eta'"
    ):
        log.champion("eta")
    with pytest.raises(InvalidLayout, match="contains decision 1 of 'eta'"):
        log.champion("other")


FORGED: dict[str, tuple[dict[str, Any] | bytes, str]] = {
    "nothing": (b"", "Expecting value"),
    "no text": (b"\xff", "'utf-8' codec"),
    "nesting": (b"[" * 10_000, "nested too deeply"),
    "half a letter": (b'{"reason":"\xff"}', "'utf-8' codec"),
    "a list": (b"[]", "Expected `object`, got `array`"),
    "a repeated key": (b'{"version":"1.0.0","version":"1.1.0"}', "the key 'version' is repeated"),
    "more than a decision takes": (b" " * (64 * 1024 + 1), "it takes more than 65536 bytes"),
    "a version with a path": ({"version": "../../1.0.0"}, "'../../1.0.0' is not a semantic version"),
    "a version that is a word": ({"version": "latest"}, "'latest' is not a semantic version"),
    "a version that is long": ({"version": "1.0.0-" + "9" * 50_000}, "is not a semantic version"),
    "a version that is null": ({"version": None}, r"Expected `str`, got `null` - at `\$\.version`"),
    "a champion that is none": ({"champion": "\x1b[2J"}, r"'\\x1b\[2J' is not a semantic version"),
    "a champion that is a number": ({"champion": 1}, r"\$\.champion"),
    "a rollback of the first release": (
        {"decision": "rollback", "champion": "1.1.0"},
        "a rollback does not have the spec version 1",
    ),
    "a promotion of the second": ({"spec_version": 2}, "a promote does not have the spec version 2"),
    "a rollback from nothing": ({"decision": "rollback", "spec_version": 2}, "changes no champion"),
    "a rollback to itself": (
        {"decision": "rollback", "spec_version": 2, "champion": "1.0.0"},
        "changes no champion",
    ),
    "a rollback without a reason": (
        {"decision": "rollback", "spec_version": 2, "champion": "1.1.0", "reason": " \n"},
        "a rollback needs a reason",
    ),
    "a user that is a number": ({"by": 7}, r"\$\.by"),
    "another decision": ({"decision": "demote"}, "Invalid enum value 'demote'"),
    "metrics that are null": ({"metrics": None}, r"\$\.metrics"),
    "metrics that are text": ({"metrics": {"rows": "1"}}, r"\$\.metrics"),
    "a number that is text": ({"number": "1"}, r"\$\.number"),
    "a spec version that is true": ({"spec_version": True}, r"\$\.spec_version"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_malformed_decision_is_one_error_that_says_what_and_where(
    url: str, log: PromotionLog, metrics: Metrics, case: str
) -> None:
    change, complaint = FORGED[case]
    forge(url, plain(log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)), change)
    where = r"promotions/eta/000001/promotion\.json in .* is not decision 1 of eta: "
    for look in (log.champion, log.history):
        with pytest.raises(InvalidLayout, match=f"{where}.*{complaint}.*; restore it, or remove it") as caught:
            look("eta")
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 2000
    with pytest.raises(InvalidLayout):
        log.append("eta", "1.1.0", PROMOTE, champion="1.0.0", metrics=metrics)


def forge(url: str, decision: dict[str, Any], change: dict[str, Any] | bytes) -> None:
    content = change if isinstance(change, bytes) else json.dumps(decision | change).encode()
    (Path(url) / "promotions/eta/000001/promotion.json").write_bytes(content)


def test_a_decision_of_a_later_release_is_not_called_malformed(url: str, log: PromotionLog, metrics: Metrics) -> None:
    decision = log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    forge(url, plain(decision), {"spec_version": 3, "metrics": None})
    with pytest.raises(UnsupportedSpecVersion, match=r"promotions/eta/000001/.* is a Promotion of spec version 3"):
        log.champion("eta")


def test_a_decision_that_could_not_be_read_again_is_not_recorded(log: PromotionLog, metrics: Metrics) -> None:
    immeasurable = replace(metrics, rmse=float("nan"))
    with pytest.raises(InvalidArtifact, match=r"the decision on eta@1\.0\.0 cannot be recorded: .*got `null`"):
        log.append("eta", "1.0.0", KEEP, champion=None, metrics=immeasurable)
    for reason in ("\ud800", "x" * 64 * 1024):
        with pytest.raises(InvalidArtifact, match="cannot be recorded"):
            log.append("eta", "1.0.0", Decision(decision="keep", reason=reason), champion=None, metrics=metrics)
    assert log.history("eta") == []


def test_what_is_in_the_way_of_a_decision_is_named(url: str, log: PromotionLog, metrics: Metrics) -> None:
    (Path(url) / "promotions/eta/000001/promotion.json").mkdir(parents=True)
    with pytest.raises(InvalidLayout, match=r"promotions/eta/000001/promotion\.json in .* is not a file") as caught:
        log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    (Path(url) / caught.value.path).rmdir()
    assert log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics).number == 1


def test_a_name_that_leads_out_of_the_registry_is_refused(log: PromotionLog) -> None:
    with pytest.raises(InvalidReference):
        log.champion("../../eta")


def test_a_decision_that_follows_none_is_named(url: str, log: PromotionLog, metrics: Metrics) -> None:
    log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    promotions = Path(url) / "promotions/eta"
    shutil.copytree(promotions / "000001", promotions / "999999999")
    for look in (log.champion, log.history):
        with pytest.raises(
            InvalidLayout, match=r"promotions/eta/999999999 in .* does not follow decision 1: remove it"
        ):
            look("eta")
    with pytest.raises(InvalidLayout):
        log.append("eta", "1.1.0", PROMOTE, champion="1.0.0", metrics=metrics)


def test_a_run_does_not_repeat_its_promotion_after_a_rollback(improved: PromotionLog, metrics: Metrics) -> None:
    improved.append("eta", "1.2.0", PROMOTE, champion="1.1.0", metrics=metrics, run="r1")
    improved.roll_back("eta", "1.1.0", champion="1.2.0", reason="late orders")
    with pytest.raises(Conflict, match=r"decision 4 followed decision 3 of this run"):
        improved.append("eta", "1.2.0", PROMOTE, champion="1.1.0", metrics=metrics, run="r1")
    assert improved.champion("eta") == "1.1.0"
