"""A module says which model it has in its last section, which is read as untrusted input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.eta_model import eta_section
from wasmline.documents import encode, plain
from wasmline.errors import InvalidModel
from wasmline.record_batches import record_batch
from wasmline.testing import guests
from wasmline.wasm import TransformContext, TransformRuntime, inspect
from wasmline.wasm.binary import add_last_section
from wasmline.wasm.binary.reader import CUSTOM, number, vector
from wasmline.wasm.model_section import MAX_SECTION_BYTES, SECTION, ModelInModule, ModelSection, model_of, with_model

MODULE = guests.guest()
CONTENT = encode(eta_section(MODULE))
WHOLE = add_last_section(MODULE, SECTION, CONTENT)


def test_a_section_is_read_back_and_is_of_the_bytes_before_it() -> None:
    section = eta_section(MODULE)
    assert with_model(MODULE, section) == WHOLE
    assert WHOLE.startswith(MODULE)
    assert model_of(WHOLE) == ModelInModule(section=section, proven=True)


def test_a_module_without_a_model_has_no_section() -> None:
    assert model_of(MODULE) is None
    assert model_of(add_last_section(MODULE, b"wasmline.model.2", CONTENT)) is None
    assert model_of(b"no module") is None


def test_a_module_with_a_section_runs_as_without_and_a_broker_takes_it() -> None:
    found = inspect(WHOLE)
    assert found.wasmline.accepted
    assert found.redpanda == inspect(MODULE).redpanda
    batch = record_batch(keys=[b"k"], values=[b"v"], headers=[()], timestamps=[0], partitions=[0], offsets=range(1))
    context = TransformContext(name="t", input_topic="in", output_topics=("out",))
    with TransformRuntime().compile(WHOLE).instantiate(context) as instance:
        [output] = instance.transform(batch).outputs.to_pylist()
    assert (output["key"], output["value"]) == (b"k", b"v")


def changed(change: dict[str, Any]) -> bytes:
    return json.dumps(plain(eta_section(MODULE)) | change).encode()


def padded(size: int) -> bytes:
    """Return a section whose size is written in one byte more than it needs."""
    content = vector(SECTION) + CONTENT
    return bytes([CUSTOM]) + number(len(content))[:-1] + bytes([number(len(content))[-1] | 0x80, 0]) + content


FORGED: dict[str, bytes] = {
    "twice": add_last_section(WHOLE, SECTION, CONTENT),
    "not last": add_last_section(WHOLE, b"other", b""),
    "not last, and written once more inside the last": add_last_section(
        WHOLE, b"other", add_last_section(b"", SECTION, CONTENT)
    ),
    "a padded size": MODULE + padded(2),
    "a padded name": MODULE + bytes([CUSTOM]) + vector(b"\x8e\x00" + SECTION + CONTENT),
    "nothing": add_last_section(MODULE, SECTION, b""),
    "not UTF-8": add_last_section(MODULE, SECTION, b"\xff"),
    "a repeated key": add_last_section(MODULE, SECTION, CONTENT[:-1] + b',"target":"x"}'),
    "deep": add_last_section(MODULE, SECTION, b"[" * 100_000),
    "long": add_last_section(MODULE, SECTION, b" " * MAX_SECTION_BYTES + CONTENT),
    "another spec version": add_last_section(MODULE, SECTION, changed({"spec_version": 2})),
    "a digest that is none": add_last_section(MODULE, SECTION, changed({"module": "sha256:aa"})),
    "a model that is none": add_last_section(
        MODULE, SECTION, changed({"model": {"name": "\x1b[2J", "version": "1", "digest": "", "dataset": ""}})
    ),
    "a count below zero": add_last_section(MODULE, SECTION, CONTENT.replace(b'"random":2000', b'"random":-1')),
    "a number that is none": add_last_section(MODULE, SECTION, CONTENT.replace(b"7.166", b"NaN")),
    "no inputs": add_last_section(MODULE, SECTION, changed({"inputs": None})),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_malformed_section_is_one_error_that_says_what_to_do(case: str) -> None:
    assert FORGED[case] != WHOLE
    with pytest.raises(InvalidModel, match=r"the module does not say which model it has: .*; compile the model again"):
        model_of(FORGED[case])


MEMBER_NAMES = {place for name in re.finditer(rb'"\w+":', WHOLE) for place in range(*name.span())}


@given(st.integers(8, len(WHOLE) - 1).filter(lambda place: place not in MEMBER_NAMES), st.integers(1, 255))
def test_a_changed_byte_is_noticed(place: int, change: int) -> None:
    """Before the section it is of another module; in it, it is another section, or none that can be read.

    Not in the name of a member: those that a later release adds are passed over, and one may have its default.
    """
    damaged = bytearray(WHOLE)
    damaged[place] ^= change
    try:
        found = model_of(bytes(damaged))
    except InvalidModel:
        return
    assert found != ModelInModule(section=eta_section(MODULE), proven=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda section: replace(section, target="\ud800"),
        lambda section: replace(section, target="x" * MAX_SECTION_BYTES),
        lambda section: replace(section, holdout=replace(section.holdout, r2=float("nan"))),
    ],
)
def test_a_section_that_could_not_be_read_back_is_not_written(change: Callable[[ModelSection], ModelSection]) -> None:
    with pytest.raises(InvalidModel, match="cannot be described in a module"):
        with_model(MODULE, change(eta_section(MODULE)))
