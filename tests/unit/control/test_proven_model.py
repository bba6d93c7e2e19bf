"""A module is deployed as the model that it was proven to be, or not at all."""

from dataclasses import replace

import pytest

from support.eta_model import eta_section
from wasmline.control import DeploymentSpec
from wasmline.control.deployment_topic import require_proven_model
from wasmline.digests import digest_of
from wasmline.errors import InvalidModel, UnprovenModel
from wasmline.model_reference import ModelReference
from wasmline.testing import guests
from wasmline.wasm.binary import add_last_section
from wasmline.wasm.model_section import SECTION, with_model

MODULE = guests.guest()
SECTION_OF_MODULE = eta_section(MODULE)
MODEL = SECTION_OF_MODULE.model


def spec(model: ModelReference | None) -> DeploymentSpec:
    return DeploymentSpec(
        name="eta", version="1.0.0", digest=digest_of(MODULE), input_topic="in", output_topics=("out",), model=model
    )


def test_a_proven_module_of_the_declared_model_may_be_deployed_and_so_may_one_without_a_model() -> None:
    require_proven_model(spec(MODEL), with_model(MODULE, SECTION_OF_MODULE))
    require_proven_model(spec(None), MODULE)


@pytest.mark.parametrize(
    "model",
    [
        None,
        replace(MODEL, version="1.1.0"),
        replace(MODEL, name="other"),
        replace(MODEL, digest=digest_of(b"other")),
        replace(MODEL, dataset=digest_of(b"other")),
    ],
)
def test_a_module_of_another_model_than_is_declared_is_refused(model: ModelReference | None) -> None:
    named = model or "no model"
    with pytest.raises(
        UnprovenModel, match=rf"eta@1\.0\.0 declares .*{named}.*, and its module has the model eta@1"
    ) as e:
        require_proven_model(spec(model), with_model(MODULE, SECTION_OF_MODULE))
    assert e.value.name == "eta"


def test_a_declared_model_that_the_module_does_not_have_is_refused() -> None:
    with pytest.raises(UnprovenModel, match="and its module has no model: publish the model again"):
        require_proven_model(spec(MODEL), MODULE)


def test_a_module_that_was_changed_after_its_proof_is_refused() -> None:
    with pytest.raises(UnprovenModel, match="was changed after it was proven to be eta@1"):
        require_proven_model(spec(MODEL), with_model(guests.guest(guests.leave(1)), SECTION_OF_MODULE))


def test_a_module_that_describes_its_model_in_a_malformed_way_is_refused() -> None:
    for model in (None, MODEL):
        with pytest.raises(InvalidModel):
            require_proven_model(spec(model), add_last_section(MODULE, SECTION, b"{}"))
