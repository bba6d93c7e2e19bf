"""Each part of Wasmline on a broker with an authorizer: the listed ACLs are enough, and none of them can be missing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from support.acls.authorized_kafka import AuthorizedKafka, authorized_kafka
from support.acls.parts import RUNS, Place
from wasmline.control import RetrainStatus, RetrainStatusTopic, control_topics
from wasmline.control.acls import CONTROL, PARTS, Acl, Operation
from wasmline.errors import NotAuthorized
from wasmline.retrain_conditions import RetrainConditions
from wasmline.training import RetrainMonitor, retrain_status_reporter

LONG_RUNS = {
    "observer",
    "operator",
    "page",
    "redriver, through a transform",
    "driver of micro-batches, exactly once",
    "driver in parallel mode, at least once",
    "driver in parallel mode, exactly once",
}
SHORT_DENIALS = {
    "creator of the control topics",
    "log reader",
    "launcher",
    "consumer, at least once",
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizedKafka]:
    """One node with an authorizer, for the tests of this module."""
    with authorized_kafka(tmp_path_factory.mktemp("kafka")) as started:
        yield started


def prepared(kafka: AuthorizedKafka, folder: Path, part: str) -> Place:
    """Return a place where an administrator has prepared a part."""
    control_topics.ensure(kafka.config)
    place = Place(kafka.config, folder)
    RUNS[part][0](place)
    return place


def run(kafka: AuthorizedKafka, place: Place, part: str, acls: Collection[Acl]) -> None:
    """Run a part as a user with these ACLs."""
    RUNS[part][1](place, kafka.user([replace(acl, name=place.named(acl.name)) for acl in acls]))


def without(acls: Collection[Acl], missing: Acl, operation: Operation) -> list[Acl]:
    left = [each for each in acls if each is not missing]
    if others := tuple(each for each in missing.operations if each != operation):
        left.append(replace(missing, operations=others))
    return left


def parts(long: Collection[str]) -> list[object]:
    return [pytest.param(part, marks=[pytest.mark.long] if part in long else []) for part in PARTS]


@pytest.mark.parametrize("part", parts(LONG_RUNS))
def test_a_part_runs_with_the_acls_that_are_listed(kafka: AuthorizedKafka, tmp_path: Path, part: str) -> None:
    run(kafka, prepared(kafka, tmp_path, part), part, PARTS[part])


@pytest.mark.parametrize("part", parts(PARTS.keys() - SHORT_DENIALS))
def test_an_acl_that_is_missing_is_named(kafka: AuthorizedKafka, tmp_path: Path, part: str) -> None:
    for acl in PARTS[part]:
        for operation in acl.operations:
            place = prepared(kafka, tmp_path, part)
            with pytest.raises(NotAuthorized, match="grant its user an ACL on it") as caught:
                run(kafka, place, part, without(PARTS[part], acl, operation))
            assert place.named(acl.name) in caught.value.name, (acl, operation, str(caught.value))


@pytest.mark.long
def test_a_retrain_monitor_gives_events_without_acls_for_its_status_and_warns_once(
    kafka: AuthorizedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    control_topics.ensure(kafka.config)
    place = Place(kafka.config, tmp_path)
    place.write(b"1")
    reads = Acl(resource="Topic", name=place.input, operations=("Read",))
    writes = Acl(resource="Topic", name=control_topics.JOBS, operations=("Read", "Write"))
    conditions = RetrainConditions(
        model=place.transform, models=str(tmp_path), topic=place.input, new_records=1, cooldown_seconds=0
    )

    def poll(*acls: Acl) -> RetrainStatus | None:
        """Return the status of a monitor of a user with these ACLs, which gives an event."""
        caplog.clear()
        with closing(RetrainMonitor(kafka.user(acls), conditions)) as monitor:
            assert monitor.poll() is not None
            assert monitor._reporter._has_settled(60)
            monitor.poll()
        with closing(RetrainStatusTopic(kafka.config, place.transform)) as statuses:
            return statuses.read()

    def warnings() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.name.endswith("retrain_status_reporter")]

    monkeypatch.setattr(retrain_status_reporter, "MAX_INTERVAL_S", 0.0)  # each poll tries to write
    for acls in ((reads, writes), *_without_an_operation(reads, writes)):
        assert poll(*acls) is None
        [warning] = warnings()
        assert warning.startswith(f"{place.transform}: the status of its retrain conditions cannot be written: NotA")
        assert "grant its user an ACL on it" in warning
    status = poll(reads, CONTROL, writes)
    assert status is not None
    assert status.text == "1 new records, at least 1"
    assert not warnings()


def _without_an_operation(reads: Acl, writes: Acl) -> Iterator[tuple[Acl, ...]]:
    for operation in writes.operations:
        yield reads, *without([CONTROL, writes], writes, operation)
