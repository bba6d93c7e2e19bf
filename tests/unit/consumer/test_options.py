from typing import Any

import pytest

from wasmline.consumer.backends.kafka import KafkaBackend
from wasmline.consumer.options import ConsumerOptions, Delivery, NullKeys, Ordering, RetryPolicy
from wasmline.errors import GuestTrap, InvalidConsumerOption, TerminalFailure
from wasmline.kafka import KafkaConfig
from wasmline.kafka.config import VARIABLE
from wasmline.offset_maps import encodings

FAULT = OSError("refused")


def options(**values: Any) -> ConsumerOptions:
    return ConsumerOptions(**{"topics": ("orders",), "group_id": "billing"} | values)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topics", ()),
        ("topics", ("",)),
        ("topics", "orders"),
        ("group_id", ""),
        ("ordering", "keys"),
        ("null_keys", "parallel"),
        ("delivery", "at_most_once"),
        ("max_concurrency", 0),
        ("batch_size", 0),
        ("commit_interval_ms", 0),
        ("buffer_records", 0),
        ("buffer_bytes", 0),
        ("handler_timeout_ms", 0),
        ("revoke_wait_ms", -1),
        ("drain_wait_ms", -1),
    ],
)
def test_an_option_without_meaning_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(InvalidConsumerOption, match=name) as caught:
        options(**{name: value})
    assert caught.value.option == name


@pytest.mark.parametrize("kafka", [{"enable.auto.commit": "true"}, {"enable.auto.commit": "True"}])
def test_commits_of_records_that_no_handler_saw_are_refused(kafka: dict[str, str]) -> None:
    with pytest.raises(InvalidConsumerOption, match=r"enable\.auto\.commit"):
        options(kafka=kafka)


def test_exactly_once_reads_only_what_is_committed() -> None:
    uncommitted = {"isolation.level": "read_uncommitted"}
    with pytest.raises(InvalidConsumerOption, match="read_committed"):
        options(delivery="exactly_once", kafka=uncommitted)
    assert options(kafka=uncommitted).kafka == uncommitted


def test_exactly_once_refuses_what_the_environment_would_have_it_read(monkeypatch: pytest.MonkeyPatch) -> None:
    given = KafkaConfig({"bootstrap.servers": "nowhere:1", "isolation.level": "read_uncommitted"})
    monkeypatch.setenv(VARIABLE, given.to_json())
    with pytest.raises(InvalidConsumerOption, match="read_committed"):
        KafkaBackend(options(delivery="exactly_once"))


def test_choices_may_be_given_as_text_in_any_case() -> None:
    chosen = options(topics=["a", "b"], ordering="PARTITION", null_keys="unordered", delivery="Exactly_Once")
    assert chosen.topics == ("a", "b")
    assert (chosen.ordering, chosen.null_keys) == (Ordering.PARTITION, NullKeys.UNORDERED)
    assert chosen.delivery is Delivery.EXACTLY_ONCE


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ({}, 5.0),
        ({"delivery": Delivery.EXACTLY_ONCE}, 0.1),
        ({"delivery": Delivery.EXACTLY_ONCE, "commit_interval_ms": 250}, 0.25),
    ],
)
def test_transactions_commit_more_often_unless_told_otherwise(values: dict[str, Any], seconds: float) -> None:
    assert options(**values).commit_interval == seconds


def test_a_delay_grows_by_its_factor_up_to_the_longest() -> None:
    retry = RetryPolicy(delay_ms=100, factor=2, max_delay_ms=500)
    assert [retry.after(attempt, FAULT) for attempt in (1, 2, 3, 4, 5, 10_000)] == [0.1, 0.2, 0.4, 0.5, 0.5, 0.5]


def test_no_delay_stays_none_however_often_a_record_failed() -> None:
    assert RetryPolicy(delay_ms=0, factor=10.5).after(10_000, FAULT) == 0


def test_the_last_attempt_is_the_last() -> None:
    retry = RetryPolicy(max_attempts=2)
    assert (retry.after(1, FAULT), retry.after(2, FAULT)) == (1.0, None)


@pytest.mark.parametrize("error", [TerminalFailure("no"), GuestTrap("unreachable"), KeyError("x")])
def test_what_trying_again_does_not_mend_is_given_up_at_once(error: Exception) -> None:
    retry = RetryPolicy(terminal=(LookupError,))
    assert retry.after(1, error) is None
    assert retry.after(1, FAULT) == 1.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("delay_ms", -1), ("max_delay_ms", -1), ("factor", 0.5), ("factor", float("nan")), ("max_attempts", 0)],
)
def test_a_policy_without_meaning_is_refused_by_name(name: str, value: float) -> None:
    policy: dict[str, Any] = {name: value}
    with pytest.raises(InvalidConsumerOption, match=name):
        RetryPolicy(**policy)


@pytest.mark.parametrize(
    "given",
    [
        {"max_concurrency": "16"},
        {"max_concurrency": 2.5},
        {"max_concurrency": True},
        {"batch_size": 1.5},
        {"buffer_bytes": None},
        {"retry": 3},
        {"retry": None},
        {"drain_wait_ms": "5"},
        {"buffer_records": encodings.MAX_INCOMPLETES + 1},
    ],
    ids=repr,
)
def test_an_option_of_another_kind_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidConsumerOption) as caught:
        ConsumerOptions(topics=("orders",), group_id="billing", **given)
    assert caught.value.option == next(iter(given))


def test_settings_of_the_client_may_be_what_python_has_for_them_and_are_not_printed() -> None:
    settings: Any = {"enable.auto.commit": False, "linger.ms": 5, "sasl.password": "secret"}
    options = ConsumerOptions(topics=("orders",), group_id="billing", kafka=settings)
    assert options.kafka == {"enable.auto.commit": "false", "linger.ms": "5", "sasl.password": "secret"}
    assert "secret" not in repr(options)
    refused: Any = {"enable.auto.commit": True}
    with pytest.raises(InvalidConsumerOption, match=r"enable\.auto\.commit"):
        ConsumerOptions(topics=("orders",), group_id="billing", kafka=refused)
