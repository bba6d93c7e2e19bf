"""Describes the model in a module: the custom section ``wasmline.model``, which only a proof writes.

Its format is in docs/protocols/model_section.md. It is no signature: it shows a mix-up of modules and models, and a
module that was changed after its proof, but not a writer who makes up both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from wasmline.digests import digest_of
from wasmline.documents import decode_strictly, encode
from wasmline.errors import InvalidModel, InvalidModule
from wasmline.job_specs import FieldType
from wasmline.model_reference import ModelReference
from wasmline.printable import bounded_line
from wasmline.wasm.binary import add_last_section, split_last_section

SECTION = b"wasmline.model"
MAX_SECTION_BYTES = 4 * 2**20

Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput:
    """One member of the JSON records to predict from. ``unit`` is empty if training named none.

    A record without it, or with null, is a dead letter, or takes the default branch of each split on it. A text that is
    not in ``categories`` is none of them.
    """

    name: str
    type: FieldType
    missing: Literal["dead_letter", "default_branch"]
    unit: str = ""
    categories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldoutMetrics:
    """Errors of the model on its ``rows`` held-out rows, in the target's unit; ``mean_rmse`` is that of the mean."""

    rows: Count
    rmse: float
    mae: float
    r2: float
    mean_rmse: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProof:
    """How many records of each kind were predicted alike, to the bit, by XGBoost and by the module."""

    held_out: Count
    boundaries: Count
    categories: Count
    random: Count
    xgboost: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSection:
    """A model, its inputs in order, the first being the records' identity, and its proof.

    ``module`` is the digest of the bytes that were proven, which are all before the section.
    """

    model: ModelReference
    target: str
    inputs: tuple[ModelInput, ...]
    holdout: HoldoutMetrics
    proof: ModelProof
    module: Annotated[str, Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
    unit: str = ""
    spec_version: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInModule:
    """The section of a module. ``proven``: the bytes before it are those of the proof."""

    section: ModelSection
    proven: bool


def with_model(wasm: bytes, section: ModelSection) -> bytes:
    """Return a module with its section. Raises InvalidModel for one that could not be read back."""
    try:
        content = encode(section)
        decode_strictly(ModelSection, content, MAX_SECTION_BYTES)
    except ValueError as error:
        raise InvalidModel(f"{section.model} cannot be described in a module: {error}") from error
    return add_last_section(wasm, SECTION, content)


def model_of(wasm: bytes) -> ModelInModule | None:
    """Return the model of a module, None if it has none or is no module. Raises InvalidModel if it is malformed."""
    try:
        split = split_last_section(wasm, SECTION)
        if split is None:
            return None
        before, content = split
        section = decode_strictly(ModelSection, content, MAX_SECTION_BYTES)
    except InvalidModule:
        return None
    except ValueError as error:
        raise InvalidModel(
            f"the module does not say which model it has: {bounded_line(error)}; compile the model again"
        ) from error
    return ModelInModule(section=section, proven=section.module == digest_of(before))
