import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from wasmline.errors import Conflict, InvalidLayout, InvalidReference, UnsupportedSpecVersion, VersionNotFound
from wasmline.training import Decision, Metrics, ModelRecord, ModelRegistry, PromotionLog, promote

PROMOTE = Decision(decision="promote", reason="better")
KEEP = Decision(decision="keep", reason="worse")


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


def test_a_rollback_is_one_more_decision(log: PromotionLog, metrics: Metrics) -> None:
    log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    log.append("eta", "1.1.0", PROMOTE, champion="1.0.0", metrics=metrics)
    log.append("eta", "1.0.0", Decision(decision="promote", reason="rollback"), champion="1.1.0", metrics=metrics)
    assert log.champion("eta") == "1.0.0"
    assert len(log.history("eta")) == 3


def test_a_decision_against_another_champion_than_the_live_one_is_refused(log: PromotionLog, metrics: Metrics) -> None:
    log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    with pytest.raises(Conflict, match=r"1\.0\.0 is live, not nothing"):
        log.append("eta", "1.1.0", PROMOTE, champion=None, metrics=metrics)
    assert log.champion("eta") == "1.0.0"


def test_a_repeated_task_records_its_decision_once(url: str, metrics: Metrics) -> None:
    first = promote(url, "eta", "1.0.0", PROMOTE, champion=None, metrics=metrics, run="run-1")
    assert promote(url, "eta", "1.0.0", PROMOTE, champion=None, metrics=metrics, run="run-1") == first
    assert PromotionLog(url).history("eta") == [first]


def test_a_version_that_does_not_exist_cannot_be_promoted(log: PromotionLog, metrics: Metrics) -> None:
    with pytest.raises(VersionNotFound):
        log.append("eta", "7.0.0", PROMOTE, champion=None, metrics=metrics)


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
    with pytest.raises(InvalidLayout, match=r"promotions/eta/000002/promotion\.json in .* holds decision 1 on 'eta'"):
        log.champion("eta")
    with pytest.raises(InvalidLayout, match="holds decision 1 on 'eta'"):
        log.champion("other")


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b'{"reason":"\xff"}'])
def test_a_decision_that_is_not_a_document_is_refused(
    url: str, log: PromotionLog, metrics: Metrics, content: bytes
) -> None:
    log.append("eta", "1.0.0", PROMOTE, champion=None, metrics=metrics)
    (Path(url) / "promotions/eta/000001/promotion.json").write_bytes(content)
    with pytest.raises(UnsupportedSpecVersion, match="not a Promotion"):
        log.champion("eta")


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
