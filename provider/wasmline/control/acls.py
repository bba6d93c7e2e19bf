"""The ACLs that each part of Wasmline needs on a Kafka cluster. docs/acls.md has the same tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from wasmline.control.control_topics import DEPLOYMENTS, HISTORY, JOBS, LOGS, MODULES, REDRIVES, STATUS

ResourceType = Literal["Topic", "Group", "TransactionalId"]
Operation = Literal["Create", "Describe", "Read", "Write"]
"""Kafka's names. Read and Write imply Describe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """Operations on a resource or, prefixed, on all whose names begin with ``name``, which may have a <placeholder>."""

    resource: ResourceType
    name: str
    operations: tuple[Operation, ...]
    is_prefixed: bool = False


def _topic(name: str, *operations: Operation) -> Acl:
    return Acl(resource="Topic", name=name, operations=operations)


def _group(name: str, operation: Operation = "Read", *, is_prefixed: bool = False) -> Acl:
    return Acl(resource="Group", name=name, operations=(operation,), is_prefixed=is_prefixed)


def _id(name: str, *, is_prefixed: bool = False) -> Acl:
    return Acl(resource="TransactionalId", name=name, operations=("Write",), is_prefixed=is_prefixed)


CONTROL = Acl(resource="Topic", name="_wasmline.", operations=("Describe",), is_prefixed=True)
"""Of each part that uses a control topic: it checks that there are all of them."""

DRIVER = (
    CONTROL,
    _topic(DEPLOYMENTS, "Read"),
    _topic(MODULES, "Read"),
    _topic(HISTORY, "Write"),
    _topic(JOBS, "Read", "Write"),
    _topic(STATUS, "Read", "Write"),
    _topic(LOGS, "Write"),
    _topic("<input>", "Read"),
    _topic("<output>", "Write"),
    _topic("<dead-letter>", "Write"),
    _id("wasmline.job.<job>", is_prefixed=True),
)

EXACTLY_ONCE_DRIVER = (
    *DRIVER,
    _group("wasmline.<job>"),
    _group("wasmline.stream.<job>.self-test.", is_prefixed=True),
    _id("wasmline.stream.<job>", is_prefixed=True),
)

PARTS: Mapping[str, tuple[Acl, ...]] = {
    "creator of the control topics": (
        Acl(resource="Topic", name="_wasmline.", operations=("Create", "Describe"), is_prefixed=True),
    ),
    "deployer": (
        CONTROL,
        _topic(MODULES, "Read", "Write"),
        _topic(DEPLOYMENTS, "Read", "Write"),
        _topic(HISTORY, "Read", "Write"),
        _topic("<input>", "Describe"),
        _topic("<output>", "Describe"),
        _topic("<dead-letter>", "Describe"),
        _id("wasmline.deployment.<transform>"),
    ),
    "observer": (
        CONTROL,
        _topic(DEPLOYMENTS, "Read"),
        _topic(HISTORY, "Read"),
        _topic(JOBS, "Read"),
        _topic(STATUS, "Read"),
        _topic("<input>", "Describe"),
        _group("wasmline.<job>", "Describe"),
    ),
    "page": (
        *(_topic(each, "Read") for each in (DEPLOYMENTS, HISTORY, JOBS, REDRIVES, STATUS, LOGS)),
        _topic("<input>", "Read"),
        _topic("<output>", "Read"),
        _topic("<dead-letter>", "Read"),
    ),
    "log reader": (CONTROL, _topic(LOGS, "Read")),
    "orchestrator": (CONTROL, _topic(JOBS, "Read", "Write"), _id("wasmline.orders")),
    "operator": (
        CONTROL,
        _topic(DEPLOYMENTS, "Read"),
        _topic(HISTORY, "Write"),
        _topic(JOBS, "Read", "Write"),
        _topic("<input>", "Read"),
        _group("wasmline.<job>"),
        _id("wasmline.orders"),
        _id("wasmline.job.<job>"),
        _id("wasmline.stream.<job>", is_prefixed=True),
    ),
    "launcher": (CONTROL, _topic(JOBS, "Read", "Write"), _id("wasmline.launcher.<launcher>")),
    "redriver, to the source": (
        CONTROL,
        _topic(REDRIVES, "Read", "Write"),
        _topic("<dead-letter>", "Read"),
        _topic("<input>", "Write"),
        _id("wasmline.redrive.<dead-letter>"),
    ),
    "redriver, through a transform": (
        CONTROL,
        _topic(REDRIVES, "Read", "Write"),
        _topic(DEPLOYMENTS, "Read"),
        _topic(MODULES, "Read"),
        _topic("<input>", "Describe"),
        _topic("<output>", "Write"),
        _topic("<dead-letter>", "Read", "Write"),
        _id("wasmline.redrive.<dead-letter>"),
    ),
    "consumer, at least once": (
        _topic("<input>", "Read"),
        _topic("<output>", "Write"),
        _topic("<dead-letter>", "Write"),
        _group("<group>"),
    ),
    "consumer, exactly once": (
        _topic("<input>", "Read"),
        _topic("<output>", "Write"),
        _topic("<dead-letter>", "Write"),
        _group("<group>", is_prefixed=True),
        _id("<group>", is_prefixed=True),
    ),
    "driver of micro-batches, at least once": (*DRIVER, _group("wasmline.<job>")),
    "driver of micro-batches, exactly once": EXACTLY_ONCE_DRIVER,
    "driver in parallel mode, at least once": (*DRIVER, _group("wasmline.<job>")),
    "driver in parallel mode, exactly once": EXACTLY_ONCE_DRIVER,
    "driver that pauses a deployment at fault": (
        CONTROL,
        _topic(DEPLOYMENTS, "Read", "Write"),
        _topic(HISTORY, "Write"),
        _id("wasmline.deployment.<transform>"),
    ),
}
