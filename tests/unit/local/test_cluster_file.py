from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from wasmline.errors import LocalError, PortInUse
from wasmline.local import cluster_file
from wasmline.local.ports import HOST, free_port, is_free


@pytest.fixture
def taken_port() -> Iterator[int]:
    port = free_port(set())
    with socket.socket() as listener:
        listener.bind((HOST, port))
        listener.listen()
        yield port


def test_a_listening_port_is_not_free(taken_port: int) -> None:
    assert not is_free(taken_port)


def test_free_ports_never_repeat() -> None:
    taken: set[int] = set()
    ports = [free_port(taken) for _ in range(200)]
    assert len(set(ports)) == 200


def test_every_listener_of_a_cluster_has_a_port_of_its_own() -> None:
    cluster = cluster_file.with_ports(cluster_file.new_cluster(3), ())
    ports = [port for node in cluster.nodes for port in (node.port, node.controller_port, node.internal_port)]
    assert len(set(ports)) == 9
    assert cluster.bootstrap_servers == ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)


def test_free_ports_are_kept_and_taken_ones_replaced(taken_port: int) -> None:
    before = cluster_file.with_ports(cluster_file.new_cluster(1), ())
    assert cluster_file.with_ports(before, ()) == before
    node = cluster_file.Node(id=1, port=taken_port, controller_port=before.nodes[0].controller_port, internal_port=0)
    after = cluster_file.with_ports(cluster_file.Cluster(id=before.id, nodes=(node,)), ())
    assert after.nodes[0].port != taken_port
    assert after.nodes[0].controller_port == before.nodes[0].controller_port


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(taken_port: int) -> None:
    with pytest.raises(PortInUse, match=str(taken_port)) as caught:
        cluster_file.with_ports(cluster_file.new_cluster(1), (taken_port,))
    assert caught.value.port == taken_port


def test_a_cluster_comes_back_from_its_folder_as_it_was(tmp_path: Path) -> None:
    cluster = cluster_file.with_ports(cluster_file.new_cluster(3), ())
    cluster.save(tmp_path)
    assert cluster_file.load(tmp_path) == cluster


def test_an_empty_folder_describes_no_cluster(tmp_path: Path) -> None:
    assert cluster_file.load(tmp_path) is None


@pytest.mark.parametrize("text", ["{", "{}", '{"id": "x", "nodes": [{"color": 1}]}'])
def test_a_broken_description_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(LocalError, match=r"cluster\.json cannot be read"):
        cluster_file.load(tmp_path)


def test_cluster_ids_can_stand_on_a_command_line() -> None:
    ids = {cluster_file.new_cluster(1).id for _ in range(500)}
    assert len(ids) == 500
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)
