from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from wasmline.cli.local import local as local_command
from wasmline.errors import LocalError, PortInUse, ServiceFailed, TopicNotFound
from wasmline.kafka import KafkaConfig, Topics, produce_all, read_to_end
from wasmline.local import LocalKafka
from wasmline.local.ports import HOST, free_port
from wasmline.local.process import Service, wait_until

LONG = 60.0


@pytest.fixture
def taken_port() -> Iterator[int]:
    port = free_port(set())
    with socket.socket() as listener:
        listener.bind((HOST, port))
        listener.listen()
        yield port


def config(kafka: LocalKafka) -> KafkaConfig:
    return KafkaConfig({"bootstrap.servers": kafka.bootstrap_servers})


def write(kafka: LocalKafka, topic: str, value: bytes) -> None:
    Topics(config(kafka)).create(topic, 1, exist_ok=True)
    produce_all(config(kafka), topic, [(None, value, None, None)])


def read(kafka: LocalKafka, topic: str) -> list[bytes | None]:
    return [message.value() for message in read_to_end(config(kafka), topic)]


def test_data_and_ports_survive_a_restart_and_a_taken_port_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    with LocalKafka(folder) as first:
        write(first, "kept", b"one")
        servers = first.bootstrap_servers
    with LocalKafka(folder) as second:
        assert second.bootstrap_servers == servers
        write(second, "kept", b"two")
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, int(servers.rpartition(":")[2])))
        listener.listen()
        with LocalKafka(folder) as third:
            assert third.bootstrap_servers != servers
            assert read(third, "kept") == [b"one", b"two"]


def test_records_are_kept_whatever_their_times(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka") as kafka:
        write(kafka, "kept", b"one")
        settings = Topics(config(kafka)).settings(["kept"])["kept"]
        assert settings is not None
        assert settings["retention.ms"] == "-1"


def test_topics_are_not_made_by_asking_for_them(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka") as kafka:
        assert not Topics(config(kafka)).exists("asked-for")
        assert not Topics(config(kafka)).exists("asked-for")


def test_a_port_that_was_asked_for_is_used_or_reported(tmp_path: Path, taken_port: int) -> None:
    port = free_port(set())
    with LocalKafka(tmp_path / "kafka", ports=[port]) as kafka:
        assert kafka.bootstrap_servers == f"127.0.0.1:{port}"
    with pytest.raises(PortInUse) as caught:
        LocalKafka(tmp_path / "kafka", ports=[taken_port]).start()
    assert caught.value.port == taken_port


def test_a_folder_runs_one_cluster_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    with LocalKafka(folder) as kafka:
        with pytest.raises(LocalError, match="a Kafka runs in"):
            LocalKafka(folder).start()
        with pytest.raises(LocalError, match="a Kafka runs in"):
            kafka.start()
        assert kafka.running() == (1,)
    assert kafka.running() == ()


def test_a_folder_keeps_its_number_of_nodes(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka"):
        pass
    with pytest.raises(LocalError, match="has a cluster of 1 nodes, not of 3"):
        LocalKafka(tmp_path / "kafka", nodes=3)
    with pytest.raises(LocalError, match="nodes must be at least 1, got 0"):
        LocalKafka(tmp_path / "other", nodes=0)


def test_a_node_that_cannot_start_is_reported_with_its_log_and_leaves_nothing_running(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    with LocalKafka(folder):
        pass
    properties = folder / "node-1" / "data" / "meta.properties"
    properties.write_text("version=1\nnode.id=77\ncluster.id=somebody-elses-cluster\n")
    kafka = LocalKafka(folder)
    with pytest.raises(ServiceFailed, match="Kafka node 1 ended") as caught:
        kafka.start()
    assert "configured node id matches" in caught.value.log
    assert kafka.running() == ()


def test_nothing_runs_any_more_after_the_owner_was_killed_and_the_data_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    code = """
import sys, time
from pathlib import Path
from wasmline.local import LocalKafka
LocalKafka(Path(sys.argv[1])).start()
print("up", flush=True)
time.sleep(600)
"""
    owner = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    owner.stdout.close()
    kafka = LocalKafka(folder)
    write(kafka, "kept", b"one")
    mark = str(folder / "node-1" / "server.properties")
    brokers = [pid for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")) if runs(pid, mark)]
    assert len(brokers) == 2  # the broker and its supervisor
    owner.kill()
    owner.wait()
    assert wait_until(lambda: not any(runs(pid, mark) for pid in brokers), LONG)
    with LocalKafka(folder) as again:
        assert read(again, "kept") == [b"one"]


def runs(pid: int, mark: str) -> bool:
    return Service(pid, mark, detached=True).alive()


def test_three_nodes_lose_one_and_keep_writing_to_every_replica_in_sync(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka", nodes=3) as kafka:
        topics = Topics(config(kafka))
        assert topics.brokers() == 3
        topics.create("kept", 3)

        def is_replicated() -> bool:
            with suppress(TopicNotFound):  # the broker that is asked may learn of it later than another one
                return topics.describe("kept").replication == 3
            return False

        assert wait_until(is_replicated, LONG)
        records = [(b"%d" % index, b"%d" % index, None, None) for index in range(300)]
        assert produce_all(config(kafka), "kept", records) == 300
        kafka.kill_node(2)
        assert kafka.running() == (1, 3)
        assert produce_all(config(kafka), "kept", records) == 300
        kafka.start_node(2)
        assert kafka.running() == (1, 2, 3)
        kafka.stop_node(1)
        assert produce_all(config(kafka), "kept", records) == 300
        assert len(read(kafka, "kept")) == 900
    assert kafka.running() == ()


def test_the_command_line_keeps_a_kafka_up_until_it_is_taken_down(tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path / "kafka")]
    command = [sys.executable, "-c", "from wasmline.cli.local import local; local()"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments, *folder], capture_output=True, text=True)

    assert run("status").returncode == 3
    try:
        up = run("up")
        assert up.returncode == 0, up.stderr
        servers = up.stdout.strip()
        again = run("up")
        assert again.stdout.strip() == servers
        assert "already up" in again.stderr
        status = run("status")
        assert status.returncode == 0
        assert "Apache Kafka 4.3.1 (PLAINTEXT)" in status.stdout
        assert Topics(KafkaConfig({"bootstrap.servers": servers})).brokers() == 1
        os.kill(int(status.stdout.split()[-1]), signal.SIGKILL)
        assert wait_until(lambda: run("status").returncode == 3, LONG)
        assert run("up").stdout.strip() == servers
    finally:
        down = run("down")
    assert "Kafka is down" in down.stderr
    assert run("status").returncode == 3
    assert "no Kafka runs in" in run("down").stderr


def test_asking_for_another_number_of_nodes_on_the_command_line_is_an_error(tmp_path: Path) -> None:
    with LocalKafka(tmp_path / "kafka"):
        pass
    result = CliRunner().invoke(local_command, ["up", "--nodes", "3", "--folder", str(tmp_path / "kafka")])
    assert isinstance(result.exception, LocalError)
