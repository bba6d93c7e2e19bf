"""URIs of assets: one for each topic, transform and model, whoever writes it, and none for two."""

import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from support.outlet_events import OutletEvents
from wasmline import control, kafka
from wasmline.errors import BrokerUnavailable
from wasmline.kafka import KafkaConfig
from wasmline_provider import asset_events
from wasmline_provider.asset_uris import model_asset, topic_asset, topic_of, transform_asset
from wasmline_provider.openlineage.dataset_names import model_name, module_name, topic_name

NOWHERE = KafkaConfig({"bootstrap.servers": "nowhere:1"})


def factories() -> dict[str, Callable[..., Asset]]:
    """Return what Airflow makes assets with, by scheme, as the providers say."""
    found: dict[str, Callable[..., Asset]] = ProvidersManagerTaskRuntime().asset_factories  # type: ignore[no-untyped-call]
    return found


@pytest.mark.parametrize("server", ["kafka", "kafka:9092", "Kafka:9092"])
def test_a_topic_has_one_uri_in_the_form_of_airflows_kafka_provider(server: str) -> None:
    asset = topic_asset(server=server, topic="deliveries.raw")
    assert (asset.name, asset.uri, asset.group) == (
        "kafka://kafka:9092/deliveries.raw",
        "kafka://kafka:9092/deliveries.raw",
        "kafka",
    )
    theirs = factories()["kafka"](server="kafka:9092", topic="deliveries.raw")
    assert asset.uri == theirs.uri


def test_topics_of_one_name_on_two_clusters_are_two_assets() -> None:
    assets = [topic_asset(server=server, topic="raw") for server in ("a:9092", "b:9092", "a:9093", "[::1]:9092")]
    assert len({each.uri for each in assets} | {each.name for each in assets}) == 4


@pytest.mark.parametrize("server", ["", "a:1,b:1", "user:secret@a:1", "PLAINTEXT://a:1", "a/b", "a:port", "::1"])
def test_an_address_that_is_not_one_server_is_refused(server: str) -> None:
    with pytest.raises(ValueError, match="name one bootstrap server"):
        topic_asset(server=server, topic="raw")


@pytest.mark.parametrize("topic", ["", "a/b", "a?b", "a b", "x" * 250])
def test_a_topic_that_cannot_be_is_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a topic"):
        topic_asset(server="a:1", topic=topic)


@pytest.mark.parametrize(
    ("registry", "uri"),
    [
        ("/var/lib/registry", "wasm://file/var/lib/registry/t"),
        ("/var//lib/./registry/", "wasm://file/var/lib/registry/t"),
        ("file:///var/lib/registry", "wasm://file/var/lib/registry/t"),
        ("s3://bucket/registry", "wasm://s3/bucket/registry/t"),
        ("s3://bucket", "wasm://s3/bucket/t"),
        ("/", "wasm://file/t"),
        ("file:///", "wasm://file/t"),
        ("memory://", "wasm://memory/t"),
        ("gs://bucket/registry", "wasm://gs/bucket/registry/t"),
        ("s3://key:secret@bucket/registry", "wasm://s3/bucket/registry/t"),
        ("abfss://a@account/registry", "wasm://abfss/a%40account/registry/t"),
        ("/a b/ü?#%", "wasm://file/a%20b/%C3%BC%3F%23%25/t"),
    ],
)
def test_a_transform_has_the_uri_of_its_registry_and_its_name(registry: str, uri: str) -> None:
    asset = transform_asset(registry=registry, name="t")
    assert (asset.name, asset.uri, asset.group) == (uri, uri, "wasm")
    assert model_asset(models=registry, name="t").uri == uri.replace("wasm", "model", 1)


def test_a_registry_whose_place_depends_on_the_process_is_refused() -> None:
    with pytest.raises(ValueError, match="the registry 'build/registry' is not an absolute folder"):
        transform_asset(registry="build/registry", name="t")
    for name in ("", "a/b"):
        with pytest.raises(ValueError, match="is not the name of a transform or a model"):
            model_asset(models="/models", name=name)


def test_airflow_gives_a_uri_that_is_written_by_hand_its_one_form() -> None:
    assert Asset(uri="WASM://S3//bucket/./registry/t/").uri == "wasm://s3/bucket/registry/t"
    assert Asset(uri="model://file/a b/t").uri == model_asset(models="/a b", name="t").uri
    for wrong in ("wasm://t", "wasm://file/..", "wasm:/file/registry/t", "model://file/models/t?version=1"):
        with pytest.raises(ValueError, match=r"write (wasm|model)://PROTOCOL/REGISTRY/NAME"):
            Asset(uri=wrong)


def test_airflow_makes_assets_by_the_factories_of_the_provider() -> None:
    arguments: dict[str, Any] = {"registry": "/r", "name": "t", "extra": {"a": 1}}
    assert factories()["wasm"](**arguments) == transform_asset(**arguments)
    assert factories()["model"](models="/m", name="t") == model_asset(models="/m", name="t")


@pytest.mark.parametrize("registry", ["s3://bucket/registry", "/var/lib/a b", "/", "memory://", "s3://k:s@bucket"])
def test_an_asset_is_the_dataset_that_the_operators_name(registry: str) -> None:
    converters: dict[str, Callable[..., Any]] = ProvidersManagerTaskRuntime().asset_to_openlineage_converters  # type: ignore[no-untyped-call]
    module = converters["wasm"](transform_asset(registry=registry, name="t"), None)
    model = converters["model"](model_asset(models=registry, name="t"), None)
    topic = converters["kafka"](topic_asset(server="Kafka", topic="raw"), None)
    assert (module.namespace, module.name) == module_name(registry, "t")
    assert (model.namespace, model.name) == model_name(registry, "t")
    assert (topic.namespace, topic.name) == topic_name("Kafka", "raw")


def test_only_a_kafka_asset_has_a_topic() -> None:
    assert topic_of(topic_asset(server="a:1", topic="raw")) == "raw"
    assert topic_of(model_asset(models="/m", name="raw")) is None
    assert topic_of(Asset("raw")) is None


def recorded(outlets: list[Asset], facts: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    context: Any = {"outlet_events": OutletEvents()}
    asset_events.record(context, outlets, facts, **options)
    return [context["outlet_events"][each].extra for each in outlets]


def test_the_event_of_a_topic_has_its_end_offsets_and_that_of_a_model_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = {"raw": {1: 7, 0: 5}}
    monkeypatch.setattr(kafka, "Topics", lambda config: SimpleNamespace(end_offsets=ends.__getitem__))
    outlets = [topic_asset(server="a:1", topic="raw"), model_asset(models="/m", name="t")]
    assert recorded(outlets, {"digest": "d"}, kafka=NOWHERE) == [
        {"digest": "d", "end_offsets": {"0": 5, "1": 7}},
        {"digest": "d"},
    ]
    assert recorded(outlets, {"digest": "d"}) == [{"digest": "d"}, {"digest": "d"}]


def test_offsets_that_cannot_be_read_fail_no_task(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unavailable(*arguments: object) -> None:
        raise BrokerUnavailable("no broker answers")

    monkeypatch.setattr(kafka, "Topics", lambda config: SimpleNamespace(end_offsets=unavailable))
    monkeypatch.setattr(control, "StatusTopic", unavailable)
    with caplog.at_level(logging.WARNING):
        assert recorded([topic_asset(server="a:1", topic="raw")], {"a": 1}, kafka=NOWHERE) == [{"a": 1}]
        assert asset_events.read_offsets(NOWHERE, "j") == {}
    assert [each.getMessage() for each in caplog.records] == [
        "the event of an asset has no end_offsets: no broker answers",
        "the event of an asset has no read_offsets: no broker answers",
    ]


def test_the_event_of_a_stream_has_what_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses = [SimpleNamespace(partition=number, offset=offset) for number, offset in ((0, 5), (1, 7))]
    topic = SimpleNamespace(of=lambda job: statuses if job == "j" else [], close=lambda: None)
    monkeypatch.setattr(control, "StatusTopic", lambda config: topic)
    found = asset_events.read_offsets(NOWHERE, "j")
    assert json.loads(json.dumps(found)) == found == {"read_offsets": {"0": 5, "1": 7}}
