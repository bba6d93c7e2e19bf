import pickle

import pytest

from wasmline import errors


def leaves(cls: type[errors.WasmlineError]) -> list[type[errors.WasmlineError]]:
    return [leaf for sub in cls.__subclasses__() for leaf in ([sub, *leaves(sub)])]


ALL = leaves(errors.WasmlineError)


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_every_error_is_drawn_in_the_tree(error: type[errors.WasmlineError]) -> None:
    assert errors.__doc__ is not None
    assert error.__name__ in errors.__doc__


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_every_error_pickles_with_its_facts(error: type[errors.WasmlineError]) -> None:
    facts = {name: f"a {name}" for name in vars(error).get("__annotations__", {})}
    original = error("what happened, and what to do", **facts)

    copy = pickle.loads(pickle.dumps(original))

    assert type(copy) is error
    assert str(copy) == str(original)
    assert vars(copy) == vars(original) == facts


def test_a_fact_that_the_error_does_not_declare_is_refused() -> None:
    with pytest.raises(TypeError, match="weather"):
        errors.GuestTrap("trapped", code="UNREACHABLE", weather="fine")


@pytest.mark.parametrize(
    ("error", "parent"),
    [
        (errors.TopicNotFound, errors.KafkaError),
        (errors.TopicMisconfigured, errors.KafkaError),
        (errors.LimitExceeded, errors.InvalidSpec),
        (errors.InvalidSpec, errors.DeployError),
        (errors.Conflict, errors.WasmlineError),
        (errors.Fenced, errors.WasmlineError),
    ],
)
def test_the_tree_follows_the_rooms(error: type[Exception], parent: type[Exception]) -> None:
    assert error.__bases__ == (parent,)
