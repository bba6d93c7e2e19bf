"""A deployment's spec: what it carries to a driver, and what it refuses to."""

import json
from dataclasses import replace
from typing import Any

import pytest

from wasmline.control import DeploymentSpec
from wasmline.control.deployment_spec import MAX_SCHEMA_BYTES
from wasmline.documents import decode, encode, plain
from wasmline.errors import InvalidSpec, LimitExceeded
from wasmline.model_reference import ModelReference
from wasmline.registry import ArtifactMetadata, Version
from wasmline.registry.declaration import parse_declaration
from wasmline.wasm import Schema

DIGEST = "sha256:" + "a" * 64
ORDERS = Schema(id=7, definition='{"type": "string"}', format="avro", subject="orders-value", version=3)


def spec(*schemas: Schema, clock: str = "wasmline") -> DeploymentSpec:
    return DeploymentSpec(
        name="t", version="1.0.0", digest=DIGEST, input_topic="in", output_topics=("out",), schemas=schemas, clock=clock  # type: ignore[arg-type]
    )  # fmt: skip


def test_the_guest_on_a_driver_finds_the_schemas_and_the_clock_that_were_deployed() -> None:
    deployed = decode(DeploymentSpec, encode(spec(ORDERS, clock="redpanda")))
    assert deployed == spec(ORDERS, clock="redpanda")
    assert (deployed.context().schemas, deployed.context().clock) == ((ORDERS,), "redpanda")


def test_a_spec_of_a_release_without_them_has_none() -> None:
    document = json.loads(encode(spec()))
    del document["schemas"], document["clock"], document["model"], document["provenance"]
    assert decode(DeploymentSpec, json.dumps(document)) == spec()


def test_schemas_are_deployed_up_to_a_quarter_of_a_record() -> None:
    room = MAX_SCHEMA_BYTES - len(encode((Schema(id=1, definition="", format="json"),)))
    assert spec(Schema(id=1, definition="x" * room, format="json")).schemas
    with pytest.raises(LimitExceeded, match=f"take {MAX_SCHEMA_BYTES + 1} bytes"):
        spec(Schema(id=1, definition="x" * room + "x", format="json"))
    with pytest.raises(LimitExceeded, match="as JSON"):
        spec(Schema(id=1, definition='"' * (room // 2 + 1), format="json"))


def test_schemas_that_contradict_each_other_and_unknown_clocks_are_not_deployed() -> None:
    with pytest.raises(InvalidSpec, match="schema id 7 is given to two definitions"):
        spec(ORDERS, Schema(id=7, definition="{}", format="avro"))
    with pytest.raises(InvalidSpec, match="unknown clock 'sundial'"):
        spec(clock="sundial")


@pytest.mark.parametrize("version", ["", "1.0.0 rc", "1.0.0\n", "ä", "1" * 129])
def test_a_version_that_cannot_be_part_of_a_header_is_not_deployed(version: str) -> None:
    with pytest.raises(InvalidSpec, match="is not a version"):
        replace(spec(), version=version)


def test_a_version_is_deployed_with_the_schemas_that_are_chosen() -> None:
    declared = {"input-topic": "in", "output-topics": ["out"]}
    metadata = ArtifactMetadata(transform=declared)
    version = Version(name="t", version="1.0.0", digest=DIGEST, size_bytes=1, metadata=metadata)
    assert DeploymentSpec.of(version) == spec()
    assert DeploymentSpec.of(version, schemas=(ORDERS,), clock="redpanda") == spec(ORDERS, clock="redpanda")


def test_a_version_with_a_model_is_deployed_with_its_reference() -> None:
    model = ModelReference(name="eta", version="1.2.0", digest=DIGEST, dataset="sha256:" + "b" * 64)
    declared = {"input-topic": "in", "output-topics": ["out"], "model": plain(model)}
    metadata = ArtifactMetadata(transform=declared)
    deployed = DeploymentSpec.of(Version(name="t", version="1.0.0", digest=DIGEST, size_bytes=1, metadata=metadata))
    assert deployed.model == model
    assert decode(DeploymentSpec, encode(deployed)) == deployed


@pytest.mark.parametrize(
    "changed", [{"name": "a b"}, {"version": "1\n"}, {"digest": "sha256:1"}, {"dataset": ""}, {"name": 7}]
)
def test_a_reference_that_cannot_be_part_of_a_header_is_refused(changed: dict[str, Any]) -> None:
    model = {"name": "eta", "version": "1.2.0", "digest": DIGEST, "dataset": DIGEST} | changed
    with pytest.raises(ValueError, match="model"):
        parse_declaration(json.dumps({"model": model}))


def version(number: str, **declared: Any) -> Version:
    digest = "sha256:" + number[0] * 64
    transform = {"input-topic": "in", "output-topics": ["out"], **declared}
    metadata = ArtifactMetadata(transform=transform)
    return Version(name="t", version=number, digest=digest, size_bytes=1, metadata=metadata)


def test_another_version_keeps_what_was_chosen_and_declares_the_rest() -> None:
    current = version("1.0.0", **{"timeout-ms": 100, "env": {"LEVEL": "info"}, "dead-letter-topic": "old.dlq"})
    deployed = DeploymentSpec.of(current, env={"LEVEL": "debug"}, max_failure_share=0.25, input_topic="chosen")
    following = version("2.0.0", **{"timeout-ms": 200, "env": {"LEVEL": "warn"}, "output-topics": ["out2"]})
    made = deployed.with_version(following, current)
    assert (made.version, made.digest) == ("2.0.0", following.digest)
    assert (made.input_topic, made.env, made.max_failure_share) == ("chosen", {"LEVEL": "debug"}, 0.25)
    assert (made.cpu_ms_per_record, made.output_topics, made.dead_letter_topic) == (200, ("out2",), None)


def test_another_version_keeps_everything_where_the_current_one_is_not_known() -> None:
    deployed = DeploymentSpec.of(version("1.0.0"), env={"LEVEL": "debug"}, cpu_ms_per_record=100)
    made = deployed.with_version(version("2.0.0", **{"timeout-ms": 200, "output-topics": ["out2"]}), None)
    assert made == replace(deployed, version="2.0.0", digest=made.digest)
    assert made.digest != deployed.digest


def test_another_version_that_declares_no_topics_has_those_of_the_deployment() -> None:
    bare = Version(
        name="t", version="2.0.0", digest=DIGEST, size_bytes=1, metadata=ArtifactMetadata(transform={"timeout-ms": 7})
    )
    made = spec().with_version(bare, version("1.0.0"))
    assert (made.topics, made.cpu_ms_per_record) == (("in", "out"), 7)
