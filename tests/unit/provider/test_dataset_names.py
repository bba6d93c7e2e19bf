"""Names of OpenLineage datasets: one for each topic, module, model and deployment, whoever sends the event."""

from pathlib import Path

import pytest

from wasmline_provider.openlineage.dataset_names import (
    deployment_name,
    model_name,
    module_name,
    path_name,
    topic_name,
)


@pytest.mark.parametrize(
    ("servers", "namespace"),
    [
        ("kafka:9093", "kafka://kafka:9093"),
        ("Kafka", "kafka://kafka:9092"),
        ("a:1,b:2", "kafka://a:1"),
        (" SASL_SSL://a:1 ,b:2", "kafka://a:1"),
        ("[::1]", "kafka://[::1]:9092"),
        ("[::1]:1", "kafka://[::1]:1"),
    ],
)
def test_a_topic_is_named_by_the_first_server_of_its_cluster(servers: str, namespace: str) -> None:
    assert topic_name(servers, "raw") == (namespace, "raw")


@pytest.mark.parametrize(
    ("registry", "namespace", "folder"),
    [
        ("/var/lib/registry", "file", "/var/lib/registry/"),
        ("/var//lib/./registry/", "file", "/var/lib/registry/"),
        ("file:///var/lib/registry", "file", "/var/lib/registry/"),
        ("/", "file", "/"),
        ("s3://bucket/registry", "s3://bucket", "registry/"),
        ("s3a://bucket/registry/", "s3://bucket", "registry/"),
        ("s3://key:secret@bucket", "s3://bucket", ""),
        ("gcs://bucket/registry", "gs://bucket", "registry/"),
        ("abfss://a@account.dfs.core.windows.net/r", "abfss://a@account.dfs.core.windows.net", "r/"),
        ("memory://", "memory://", ""),
    ],
)
def test_an_artifact_is_named_by_its_folder_in_the_registry(registry: str, namespace: str, folder: str) -> None:
    assert module_name(registry, "t") == (namespace, f"{folder}modules/t")
    assert model_name(registry, "t") == (namespace, f"{folder}models/t")


def test_a_relative_folder_is_named_by_its_place_on_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert module_name("registry", "t") == module_name(f"{tmp_path}/registry", "t")
    assert path_name("project") == ("file", f"{tmp_path}/project")


def test_a_deployment_is_no_topic() -> None:
    assert deployment_name("kafka:9092", "t") == ("kafka://kafka:9092", "_wasmline.deployments/t")
