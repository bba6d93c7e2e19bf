"""The gate's figures hold whatever the errors of two models are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wasmline.training import GatePolicy, Metrics, decide
from wasmline.training.feature_encoding import Vector
from wasmline.training.gate import ChampionErrors, PairedErrors
from wasmline.training.paired_bootstrap import ratio_interval

METRICS = Metrics(rows=100, rmse=7.2, mae=5.7, r2=0.4, mean_rmse=9.4, holdout="sha256:aa")
SIZES = st.floats(min_value=0, max_value=1e9, allow_subnormal=False)


@st.composite
def errors(draw: st.DrawFn) -> Vector:
    """Squared errors of 100 to 3,000 rows: noise of any size, of which some repeat a value."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = random.normal(0, draw(st.floats(0.1, 100)), draw(st.integers(100, 3_000)))
    rows[: draw(st.integers(0, 50))] = draw(SIZES)
    return np.asarray(rows**2)


@settings(max_examples=25)
@given(errors(), st.floats(0.5, 2), st.integers(0, 2**32))
def test_swapping_the_models_inverts_the_interval(first: Vector, scale: float, seed: int) -> None:
    second = first * scale * np.random.default_rng(seed).uniform(0.5, 1.5, len(first))
    there = ratio_interval(first, second, confidence=0.99, seed=seed)
    back = ratio_interval(second, first, confidence=0.99, seed=seed)
    assert 1 / back.high == pytest.approx(there.low, rel=1e-3)
    assert 1 / back.low == pytest.approx(there.high, rel=1e-3)


@settings(max_examples=25)
@given(errors(), st.floats(-10, 0.9), st.floats(0.5, 0.9999))
def test_identical_predictions_are_never_promoted(same: Vector, margin: float, confidence: float) -> None:
    policy = GatePolicy(margin=margin, confidence=confidence)
    found = decide(METRICS, policy, ChampionErrors(held_out=PairedErrors(challenger=same, champion=same.copy())))
    assert found.refusal == "equal"


@settings(max_examples=25)
@given(errors(), st.integers(0, 2**32))
def test_of_two_models_at_most_one_replaces_the_other(first: Vector, seed: int) -> None:
    second = first * np.random.default_rng(seed).uniform(0.8, 1.2, len(first))
    policy = GatePolicy(seed=seed)
    made = [
        decide(METRICS, policy, ChampionErrors(held_out=PairedErrors(challenger=one, champion=other))).promote
        for one, other in ((first, second), (second, first))
    ]
    assert not all(made)


@settings(max_examples=25)
@given(errors(), st.floats(0.5, 0.99), st.floats(1.5, 3))
def test_a_model_that_is_worse_on_every_row_of_a_segment_is_never_promoted(
    champion: Vector, better: float, worse: float
) -> None:
    segment = np.arange(len(champion)) % 2 == 0
    challenger = np.where(segment, champion * worse, champion * better)
    errors = ChampionErrors(held_out=PairedErrors(challenger=challenger, champion=champion), segments={"a=b": segment})
    found = decide(METRICS, GatePolicy(margin=-10), errors)
    assert found.refusal == "segment a=b"
    assert found == decide(METRICS, GatePolicy(margin=-10), errors)
