"""Assets of topics, transforms and models, by URIs that are the same in every DAG.

The forms are kept: DAGs that are scheduled on an asset find it by its URI. See ``docs/airflow.md``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from airflow.sdk import Asset, AssetWatcher

from wasmline.topic_partitions import TOPIC_NAME
from wasmline_provider.registry_places import registry_place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from urllib.parse import SplitResult

    from airflow.providers.common.compat.openlineage.facet import Dataset

SERVER = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?", re.ASCII)
DEFAULT_PORT = "9092"


def topic_asset(
    *, server: str, topic: str, extra: dict[str, Any] | None = None, watchers: Sequence[AssetWatcher] = ()
) -> Asset:
    """Return the asset of a topic, ``kafka://host:port/topic``: as in Airflow's Kafka provider, with a port.

    Raises ValueError.

    server: one bootstrap server of the cluster, in every DAG the same; its port is 9092 if it names none.
    watchers: their triggers fire for the asset, such as NewRecordsTrigger.
    """
    if (found := SERVER.fullmatch(server)) is None:
        raise ValueError(f"server is {server!r}: name one bootstrap server of the cluster, such as kafka:9092")
    if not TOPIC_NAME.fullmatch(topic):
        raise ValueError(f"{topic!r} is not the name of a topic")
    uri = f"kafka://{found[1].lower()}:{found[2] or DEFAULT_PORT}/{topic}"
    return Asset(uri=uri, group="kafka", extra=extra, watchers=list(watchers))


def transform_asset(*, registry: str | Path, name: str, extra: dict[str, Any] | None = None) -> Asset:
    """Return the asset of a transform's module, such as ``wasm://s3/bucket/registry/delivery-distance``.

    Raises ValueError.

    registry: the absolute folder or the fsspec URL of the registry. A password in it is left out.
    """
    return Asset(uri=_artifact_uri("wasm", str(registry), name), group="wasm", extra=extra)


def model_asset(*, models: str | Path, name: str, extra: dict[str, Any] | None = None) -> Asset:
    """Return the asset of a model's champion, such as ``model://file/var/lib/models/delivery-eta``.

    Raises ValueError.

    models: the absolute folder or the fsspec URL of the model registry. A password in it is left out.
    """
    return Asset(uri=_artifact_uri("model", str(models), name), group="model", extra=extra)


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the one form of a ``wasm://`` or ``model://`` URI. Raises ValueError.

    The storage's protocol, or ``file``, is its authority: of two registries with the same path, each has its own.
    """
    path = posixpath.normpath(f"/{uri.path.lstrip('/')}")
    if not uri.netloc or uri.query or path == "/":
        raise ValueError(f"write {uri.scheme}://PROTOCOL/REGISTRY/NAME, such as {uri.scheme}://s3/bucket/registry/name")
    return uri._replace(netloc=uri.netloc.lower(), path=quote(unquote(path)))


def to_openlineage_dataset(asset: Asset, lineage_context: object) -> Dataset:
    """Return the dataset of a transform or a model, the one that the facets of the operators name."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    from wasmline_provider.openlineage.dataset_names import model_name, module_name

    uri = urlsplit(asset.uri)
    folder, _, name = unquote(uri.path).rpartition("/")
    registry = f"file://{folder or '/'}" if uri.netloc == "file" else f"{uri.netloc}://{folder.lstrip('/')}"
    found = module_name(registry, name) if uri.scheme == "wasm" else model_name(registry, name)
    return Dataset(namespace=found.namespace, name=found.name)


def topic_of(asset: Asset) -> str | None:
    """Return the topic of a ``kafka://`` asset, None of any other."""
    uri = urlsplit(asset.uri)
    return uri.path.strip("/") if uri.scheme == "kafka" else None


def _artifact_uri(scheme: str, registry: str, name: str) -> str:
    place = registry_place(registry)
    if not name or "/" in name:
        raise ValueError(f"{name!r} is not the name of a transform or a model")
    path = posixpath.normpath(f"{place.authority}{place.folder}/{name}").lstrip("/")
    return f"{scheme}://{place.protocol}/{quote(path)}"
