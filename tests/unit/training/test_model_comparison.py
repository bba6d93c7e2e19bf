"""Two versions side by side: comparable on the same rows only, with what differs in their trainings."""

from dataclasses import replace

import pytest

from wasmline.training import Decision, Metrics, ModelRecord, ModelVersion, Promotion
from wasmline.training.model_comparison import compare_versions


@pytest.fixture
def first(record: ModelRecord) -> ModelVersion:
    return ModelVersion(name="eta", version="1.0.0", digest="sha256:1", size=1, record=record)


def trained(first: ModelVersion, holdout: str) -> ModelVersion:
    """Return a version of more trees and of more records."""
    record = first.record
    changed = replace(
        record,
        metrics=replace(record.metrics, rmse=7.0, holdout=holdout),
        parameters=replace(record.parameters, trees=5),
        dataset=replace(record.dataset, offsets={"0": (0, 99)}),
        training_rows=99,
    )
    return replace(first, version="1.1.0", record=changed)


def decision(metrics: Metrics, champion_metrics: Metrics | None, version: str, champion: str) -> Promotion:
    made = Decision(decision="keep", reason="worse")
    return Promotion(
        model="eta",
        number=5,
        decision=made.decision,
        reason=made.reason,
        version=version,
        champion=champion,
        metrics=metrics,
        champion_metrics=champion_metrics,
        decided_ms=1,
    )


def test_metrics_on_the_same_rows_are_comparable_and_what_differs_is_named(first: ModelVersion) -> None:
    found = compare_versions(first, trained(first, "sha256:aa"), [])
    assert (found.comparable, found.decision) == (True, None)
    assert [each.rmse for each in found.metrics] == [7.2, 7.0]
    assert found.differences == {
        "parameters.trees": (3, 5),
        "dataset.offsets": ({"0": [0, 10], "1": [5, 25]}, {"0": [0, 99]}),
        "training_rows": (80, 99),
    }


def test_metrics_on_different_rows_are_not_comparable(first: ModelVersion) -> None:
    assert not compare_versions(first, trained(first, "sha256:bb"), []).comparable


def test_metrics_that_a_decision_between_them_measured_are_comparable(first: ModelVersion, metrics: Metrics) -> None:
    second = trained(first, "sha256:bb")
    champions = replace(metrics, rmse=7.1, holdout="sha256:bb")
    history = [decision(second.record.metrics, champions, "1.1.0", "1.0.0")]
    found = compare_versions(first, second, history)
    assert (found.comparable, found.decision) == (True, 5)
    assert [each.rmse for each in found.metrics] == [7.1, 7.0]
    turned = compare_versions(second, first, history)
    assert [each.rmse for each in turned.metrics] == [7.0, 7.1]


def test_a_rollback_measured_nothing_on_the_same_rows(first: ModelVersion, metrics: Metrics) -> None:
    second = trained(first, "sha256:bb")
    unmeasured = decision(metrics, None, "1.1.0", "1.0.0")
    back = replace(decision(metrics, second.record.metrics, "1.0.0", "1.1.0"), decision="rollback", spec_version=2)
    other = decision(second.record.metrics, second.record.metrics, "1.1.0", "0.9.0")
    assert not compare_versions(first, second, [unmeasured, back, other]).comparable


def test_a_version_does_not_differ_from_itself(first: ModelVersion) -> None:
    assert compare_versions(first, first, []).differences == {}
