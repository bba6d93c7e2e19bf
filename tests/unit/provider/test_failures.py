"""Which failures of a task are retried: decided for every error."""

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any

import pytest
from airflow.sdk import BaseOperator, BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from wasmline import errors
from wasmline.errors import JobFailed, WasmlineError
from wasmline_provider.get_provider_info import get_provider_info
from wasmline_provider.operators import failures
from wasmline_provider.operators.failures import fail_at_once

RETRIED = {
    "ArtifactUnavailable",
    "BrokerUnavailable",
    "ClientClosed",
    "ClientUntested",
    "CommitFailed",
    "Conflict",
    "ConsumerError",
    "GroupInUse",
    "HandlerBroken",
    "HandlerStuck",
    "HangingTransactionEnded",
    "InstanceClosed",
    "JobBusy",
    "JobFailed",
    "KafkaError",
    "LauncherUnavailable",
    "MetadataTooLarge",
    "PortInUse",
    "ProducerFenced",
    "ProducerIdExpired",
    "RegistryUnavailable",
    "ServiceFailed",
}
CLASSES = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, WasmlineError)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_that_no_retry_cures_fails_at_once(kind: type[WasmlineError]) -> None:
    error = kind("it went wrong", **({"report": {}} if kind is JobFailed else {}))

    @fail_at_once
    def execute() -> None:
        raise error

    if kind.__name__ in RETRIED:
        with pytest.raises(kind):
            execute()
    else:
        with pytest.raises(AirflowFailException, match=f"{kind.__name__}: it went wrong") as failed:
            execute()
        assert failed.value.__cause__ is error


@pytest.mark.parametrize(
    ("error", "retried"),
    [("ProgressLost", False), ("BrokerUnavailable", True), ("Py4JJavaError", True), (None, True)],
)
def test_of_a_failed_run_its_own_error_decides(error: str | None, retried: bool) -> None:
    @fail_at_once
    def execute() -> None:
        raise JobFailed("the run failed", report={"error": error})

    with pytest.raises(JobFailed if retried else AirflowFailException):
        execute()


@pytest.mark.parametrize("error", [ValueError("mine"), AirflowSkipException("skip"), OSError("disk")])
def test_other_errors_are_as_ever(error: Exception) -> None:
    @fail_at_once
    def execute() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        execute()
    assert raised.value is error


OPERATORS = [
    operator
    for kind in ("operators", "sensors")
    for integration in get_provider_info()[kind]
    for module in integration["python-modules"]
    for operator in vars(import_module(module)).values()
    if inspect.isclass(operator) and issubclass(operator, BaseOperator) and operator.__module__ == module
    if operator.execute is not BaseOperator.execute
]


METHODS = {
    f"{operator.__name__}.{name}": method
    for operator in OPERATORS
    for name in ("poke" if issubclass(operator, BaseSensorOperator) else "execute", "execute_complete")
    if not operator.__name__.startswith("_") and (method := getattr(operator, name, None))
}


def load(name: str) -> None:
    __import__(name)


def follow(following: Callable[[], None]) -> None:
    following()


def importing(library: str, *modules: str) -> Callable[[], None]:
    """Return an operator's method of the first module; each calls one of the next, and the last imports a library."""
    call = FunctionType(load.__code__, {"__name__": modules[-1]}, argdefs=(library,))
    for module in reversed(modules[:-1]):
        call = FunctionType(follow.__code__, {"__name__": module}, argdefs=(call,))
    return fail_at_once(call)


@pytest.mark.parametrize(
    ("library", "extra", "modules"),
    [
        ("wasmtime", "wasm", ["wasmline.wasm.engine"]),
        ("py4j", "spark", ["wasmline_provider.hooks.spark", "pyspark.context"]),
    ],
)
def test_a_library_of_an_extra_that_is_not_installed_fails_at_once_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, library: str, extra: str, modules: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(AirflowFailException, match=rf"{library} is not installed: pip install 'wasmline\[{extra}\]'"):
        importing(library, *modules)()


@pytest.mark.parametrize("modules", [["shop"], ["wasmline.pipeline.handler_loader", "shop", "pyspark.sql"]])
def test_a_library_that_a_module_of_the_user_needs_is_as_ever(
    monkeypatch: pytest.MonkeyPatch, modules: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError):
        importing("pandas", *modules)()


def test_a_module_of_the_user_that_is_missing_is_as_ever() -> None:
    @fail_at_once
    def execute() -> None:
        raise ModuleNotFoundError("No module named 'ours'", name="ours")

    with pytest.raises(ModuleNotFoundError):
        execute()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_no_operator_is_without_the_rule(name: str) -> None:
    assert any(layer.__code__.co_filename == failures.__file__ for layer in _layers(METHODS[name]))


def _layers(function: Callable[..., Any] | None) -> list[Any]:
    """Return a function and those that it wraps."""
    layers: list[Any] = []
    while function is not None:
        layers.append(function)
        function = getattr(function, "__wrapped__", None)
    return layers
