"""Names what tasks read and write, by OpenLineage's naming specification.

The names are kept: an event of another release, or of another tool, joins the graph by them. See ``docs/airflow.md``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import NamedTuple

from wasmline_provider.registry_places import registry_place

DEFAULT_PORT = 9092

STORES = {"abfs": "abfss", "gcs": "gs", "s3a": "s3", "s3n": "s3"}
"""Protocols of fsspec and Hadoop with another name in OpenLineage."""


class DatasetName(NamedTuple):
    """The identity of an OpenLineage dataset: its data source, and its name there."""

    namespace: str
    name: str


def topic_name(bootstrap_servers: str, topic: str) -> DatasetName:
    """Return the name of a topic. The first server stands for the cluster; its port is 9092 if it names none."""
    server = bootstrap_servers.partition(",")[0].strip().rpartition("://")[2].lower()
    if not re.search(r":\d+$", server):
        server = f"{server}:{DEFAULT_PORT}"
    return DatasetName(f"kafka://{server}", topic)


def deployment_name(bootstrap_servers: str, transform: str) -> DatasetName:
    """Return the name of a deployment: its key in the control topic. No topic has a slash in its name."""
    from wasmline.control import control_topics

    return topic_name(bootstrap_servers, f"{control_topics.DEPLOYMENTS}/{transform}")


def module_name(registry: str, transform: str) -> DatasetName:
    """Return the name of a transform's published modules: their folder in the registry."""
    return _folder_name(registry, f"modules/{transform}")


def model_name(models: str, model: str) -> DatasetName:
    """Return the name of a model: the folder of its versions in the model registry."""
    return _folder_name(models, f"models/{model}")


def path_name(path: str) -> DatasetName:
    """Return the name of a file or a folder of the worker."""
    return DatasetName("file", str(Path(path).absolute()))


def _folder_name(registry: str, folder: str) -> DatasetName:
    place = registry_place(registry if "://" in registry else str(Path(registry).absolute()))
    name = posixpath.normpath(f"{place.folder}/{folder}").lstrip("/")
    if place.protocol == "file":
        return DatasetName("file", f"/{name}")
    return DatasetName(f"{STORES.get(place.protocol, place.protocol)}://{place.authority}", name)
