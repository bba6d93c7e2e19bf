"""``wasmline explain`` on a real Kafka: a prediction, a dead letter, and what is missing."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner, Result

from wasmline.build.report import BuildReport
from wasmline.cli import main
from wasmline.documents import plain
from wasmline.kafka import produce_all, producer, read_to_end
from wasmline.kafka.bounded_admin_client import BoundedAdminClient
from wasmline.model_reference import ModelReference
from wasmline.registry import ArtifactMetadata, FilesystemRegistry
from wasmline.testing import guests
from wasmline.testing.kafka import RunningKafka
from wasmline.training import Dataset, FeatureLayout, Metrics, ModelRecord, ModelRegistry, TreeParameters

TOOLCHAIN = "ziglang 0.17.0"


@dataclass
class Chain:
    """Raw records, features made of them, predictions made of these, and the dead letters of the first transform."""

    kafka: RunningKafka
    registry: Path
    raw: str
    features: str
    predictions: str
    letters: str

    def explain(self, topic: str, partition: int, offset: int, *options: str) -> Result:
        servers = f"bootstrap.servers={self.kafka.bootstrap_servers}"
        place = [topic, str(partition), str(offset)]
        registries = ["--registry", str(self.registry), "--models", str(self.registry)]
        return CliRunner().invoke(main, ["explain", *place, "-X", servers, *registries, *options])

    def documents(self, topic: str, partition: int, offset: int) -> list[dict[str, Any]]:
        result = self.explain(topic, partition, offset, "--json")
        assert result.exit_code == 0, result.stderr
        records: list[dict[str, Any]] = json.loads(result.stdout)["records"]
        return records


@pytest.fixture(scope="module")
def chain(kafka: RunningKafka, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    root = tmp_path_factory.mktemp("registry")
    chain = Chain(kafka, root, kafka.topic(2), kafka.topic(2), kafka.topic(2), kafka.topic())
    trained = ModelRegistry(str(root)).publish(model_record(chain.features), b"{}")
    model = ModelReference(
        name="eta", version=trained.version, digest=trained.digest, dataset=trained.record.dataset_digest
    )
    publish(chain, "clean", guests.guest(guests.when_key("x", guests.TRAP) + guests.WRITE), chain.raw, chain.features)
    publish(chain, "eta-model", guests.guest(abi=2), chain.features, chain.predictions, model=plain(model))
    produce_all(kafka.config, chain.raw, [(b"k%d" % (n % 5), b"%d" % n, None, 1_000 * n) for n in range(40)])
    produce_all(kafka.config, chain.raw, [(b"x", b"poison", [("h", b"1")], 1_000)])
    for name in ("clean", "eta-model"):
        command = ["worker", "--group", f"group-{uuid.uuid4()}", "--module", name, "--registry", str(root)]
        command += ["--stop-at-end", "-X", f"bootstrap.servers={kafka.bootstrap_servers}"]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.stderr
    return chain


def publish(chain: Chain, name: str, wasm: bytes, source: str, target: str, **declared: object) -> None:
    declaration = {
        "input-topic": source,
        "output-topics": [target],
        "dead-letter-topic": chain.letters,
        **declared,
    }
    registry = FilesystemRegistry(str(chain.registry))
    registry.publish(
        name,
        "1.2.0",
        wasm,
        metadata=ArtifactMetadata(transform=declaration),
        provenance=build_report(name, registry, wasm).provenance(),
    )


def build_report(name: str, registry: FilesystemRegistry, wasm: bytes) -> BuildReport:
    from wasmline.digests import digest_of

    return BuildReport(
        path="", digest=digest_of(wasm), size_bytes=len(wasm), name=name, version="1.2.0", language="cpp",
        toolchain=TOOLCHAIN, flags=("-O2",), sources=("src/main.cc",), source_digest="sha256:" + "5" * 64,
        source_revision="0a1b2c3d", imports=(), abi=1, seconds=1.0, cached=False,
    )  # fmt: skip


def model_record(topic: str) -> ModelRecord:
    layout = FeatureLayout(features=("km",), categories={})
    dataset = Dataset(
        topic=topic, topic_id="t1", offsets={"0": (0, 900), "1": (5, 1_000)},
        fields={"id": "string", "km": "double", "minutes": "double"}, where="true",
        target="minutes", identity="id", seed=7, holdout_share=0.2,
    )  # fmt: skip
    return ModelRecord(
        model="eta", target="minutes", layout=layout, columns=layout.columns, dataset=dataset,
        parameters=TreeParameters(trees=1, depth=1, learning_rate=0.3, seed=7), dataset_digest=dataset.digest,
        training_rows=1_500, metrics=Metrics(rows=395, rmse=7.2, mae=5.7, r2=0.4, mean_rmse=9.4, holdout="sha256:aa"),
        libraries={}, created="2026-01-01T00:00:00Z",
    )  # fmt: skip


def place_of(chain: Chain, topic: str, value: bytes) -> tuple[str, int, int]:
    [found] = [each for each in read_to_end(chain.kafka.config, topic) if each.value() == value]
    return topic, found.partition() or 0, found.offset() or 0


def position(place: tuple[str, int, int]) -> dict[str, Any]:
    return dict(zip(("topic", "partition", "offset"), place, strict=True))


def test_a_prediction_is_followed_to_its_raw_record_with_module_model_and_training_offsets(chain: Chain) -> None:
    places = [place_of(chain, topic, b"17") for topic in (chain.predictions, chain.features, chain.raw)]
    prediction, features, raw = chain.documents(*places[0])
    assert [each["position"] for each in (prediction, features, raw)] == [position(place) for place in places]
    assert [each["source"] for each in (prediction, features, raw)] == [position(place) for place in places[1:]] + [
        None
    ]
    registry = FilesystemRegistry(str(chain.registry))
    for record, name in ((prediction, "eta-model"), (features, "clean")):
        module, digest = record["module"], registry.get(name).digest
        assert (module["name"], module["version"], module["digest"]) == (name, "1.2.0", digest)
        assert module["recorded_digest"] == digest[7:19]
        assert (module["toolchain"], module["language"], module["commit"]) == (TOOLCHAIN, "cpp", "0a1b2c3d")
        assert (module["sources"], module["source_digest"]) == (["src/main.cc"], "sha256:" + "5" * 64)
    stored = ModelRegistry(str(chain.registry)).get("eta", "1.0.0")
    model = prediction["model"]
    assert (model["name"], model["version"], model["digest"]) == ("eta", "1.0.0", stored.digest)
    assert (model["dataset"], model["topic"]) == (stored.record.dataset_digest, chain.features)
    assert model["offsets"] == {"0": [0, 900], "1": [5, 1_000]}
    assert model["metrics"]["rmse"] == 7.2
    assert features["model"] is raw["model"] is raw["module"] is None
    for record in (prediction, features, raw):
        assert not record["problems"]
        assert not [each for part in ("module", "model") if record[part] for each in record[part]["problems"]]


def test_the_text_names_the_same(chain: Chain) -> None:
    result = chain.explain(*place_of(chain, chain.predictions, b"17"))
    assert result.exit_code == 0, result.stderr
    shown = re.sub(" +", " ", result.stdout)
    topic, partition, offset = place_of(chain, chain.raw, b"17")
    for words in (
        "eta-model@1.2.0, module sha256:",
        "sources src/main.cc (sha256:555",
        "commit 0a1b2c3d",
        f"toolchain {TOOLCHAIN} (cpp)",
        "model eta@1.0.0, sha256:",
        f"trained on 1,500 rows of {chain.features}-0@[0, 900), {chain.features}-1@[5, 1000)",
        "RMSE 7.200, of the mean 9.400 (395 held out)",
        f"record {topic}-{partition}@{offset}, 1970-01-01 00:00:17 UTC\n source none: it has no provenance\n",
    ):
        assert words in shown
    assert "problem" not in shown


def test_a_dead_letter_is_followed_to_the_record_that_failed(chain: Chain) -> None:
    letter, raw = chain.documents(chain.letters, 0, 0)
    assert letter["source"] == raw["position"] == position(place_of(chain, chain.raw, b"poison"))
    assert letter["error"] == "GuestTrap"
    assert letter["reason"].startswith("the guest trapped")
    assert letter["module"]["digest"] == letter["module"]["recorded_digest"]


def test_registries_that_lack_a_version_are_named_and_the_rest_is_told(chain: Chain, tmp_path: Path) -> None:
    prediction, features, raw = chain.documents(*place_of(chain, chain.predictions, b"3"))
    elsewhere = replace(chain, registry=tmp_path)
    told = elsewhere.documents(*place_of(chain, chain.predictions, b"3"))
    assert [each["position"] for each in told] == [each["position"] for each in (prediction, features, raw)]
    assert "eta-model" in told[0]["module"]["problems"][0]
    assert "eta" in told[0]["model"]["problems"][0]
    assert told[0]["module"]["recorded_digest"] == prediction["module"]["recorded_digest"]


def test_digests_that_differ_from_the_registrys_are_named(chain: Chain) -> None:
    target, source = chain.kafka.topic(), f"{chain.raw} 0 0"
    other, digits = "9" * 12, ModelRegistry(str(chain.registry)).get("eta", "1.0.0").digest[7:19]
    value = f"{source} clean@1.2.0 {other} eta@1.0.0 {digits} {other}".encode()
    produce_all(chain.kafka.config, target, [(b"k", b"v", [("wasmline.provenance", value)], None)])
    record = chain.documents(target, 0, 0)[0]
    assert f"names the module {other}" in record["module"]["problems"][0]
    [problem] = record["model"]["problems"]
    assert f"names the dataset {other}" in problem


def test_a_source_that_is_not_there_and_one_that_leads_back_are_named(chain: Chain) -> None:
    target = chain.kafka.topic()
    values = [f"{source} clean@1.2.0 {'9' * 12}".encode() for source in (f"{target} 0 0", f"{target} 0 99", "gone 0 0")]
    values.append(b"\x1b[2Jnonsense")
    rows = [(b"k", b"v", [("wasmline.provenance", value)], None) for value in values]
    produce_all(chain.kafka.config, target, rows)
    problems = [chain.documents(target, 0, offset)[-1]["problems"] for offset in range(4)]
    assert [len(each) for each in problems] == [1, 1, 1, 1]
    assert "it comes from this record" in problems[0][0]
    assert f"there is no record {target}-0@99: the partition ends at 4" in problems[1][0]
    assert "there is no topic gone" in problems[2][0]
    assert "is not provenance" in problems[3][0]
    assert "\x1b" not in chain.explain(target, 0, 3).stdout


def test_a_record_that_is_not_there_is_an_error_that_says_why(chain: Chain) -> None:
    topic = chain.kafka.topic()
    client = producer(chain.kafka.config, **{"transactional.id": f"id-{uuid.uuid4()}"})
    client.init_transactions(30)
    for committed in (True, False):
        client.begin_transaction()
        client.produce(topic, b"v")
        client.flush()
        (client.commit_transaction if committed else client.abort_transaction)(30)
    client.begin_transaction()
    client.produce(topic, b"open")
    client.flush()
    reasons = {
        (topic, 1, 0): "has 1 partitions, and none is number 1",
        (topic, 0, 1): "marker of a transaction",
        (topic, 0, 2): "it was compacted or aborted",
        (topic, 0, 4): "behind a transaction that is open",
        (topic, 0, 5): "the partition ends at 4",
        ("no-such-topic", 0, 0): "there is no topic no-such-topic",
    }
    for place, reason in reasons.items():
        result = chain.explain(*place)
        assert result.exit_code == 1
        assert reason in result.stderr
    client.abort_transaction(30)
    assert chain.documents(topic, 0, 0)[0]["source"] is None
    admin = BoundedAdminClient(chain.kafka.config, 30).client
    [deleted] = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, 1)]).values()
    deleted.result(30)
    assert "the partition begins at 1" in chain.explain(topic, 0, 0).stderr
