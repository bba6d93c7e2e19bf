"""The control plane of a cluster with 10 versions of a transform beside that of one with 10,000.

    make bench-control (VERSIONS=10000)

Both clusters run at once, and take turns. What is measured, in wall time and in CPU time of the client, as the ratio of
the medians: to deploy a version; to switch a driver to it, which reads the deployment and its module; and what a new
driver reads before it plans. Then, on the large one, ``wasmline list`` with 1,000 deployments and 200 jobs, and the
memory that a follower of the control topics takes on either. Earlier versions are written as deploys leave them before
any compaction, which is the worst case. Prints a table and writes build/bench/control.json.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from wasmline.clock import now_ms
from wasmline.control import (
    Deployment,
    DeploymentEvent,
    DeploymentSpec,
    JobTopic,
    ModuleOffsets,
    StatusTopic,
    control_topics,
    deploy,
)
from wasmline.control.deployment_history import event_record
from wasmline.digests import digest_of
from wasmline.documents import encode
from wasmline.job_specs import JobReport, JobSpec, JobState, StreamSpec
from wasmline.kafka import KafkaConfig, Topics, produce_all
from wasmline.leases.lease_status_reporter import unread
from wasmline.local import LocalKafka
from wasmline.spark.deployment_tracker import DeploymentTracker
from wasmline.testing.guests import guest
from wasmline.wasm.binary.custom_section import add_last_section

REPOSITORY = Path(__file__).parents[2]
VERSIONS = int(os.environ.get("VERSIONS", "10000"))
FEW_VERSIONS = 10
MODULE_BYTES = 20_000
RUNS = 15
DEPLOYMENTS, JOBS, TOPICS = 1_000, 200, 100
GOALS = {"deploy": 1.5, "switch": 1.5, "driver start": 1.5, "memory of a follower": 1.5}
LIST_GOAL_S = 2.0

FOLLOWER = """
from pathlib import Path
from wasmline.control import CONTROL_TOPICS, JobControlState
from wasmline.kafka import KafkaConfig, TopicTailer
state, tailer = JobControlState("job", "t"), TopicTailer(KafkaConfig.from_environment(), CONTROL_TOPICS)
for message in tailer.poll():
    state.apply(message.topic(), message.key(), message.value())
status = Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))
"""

Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None]


@dataclass
class Cluster:
    """A cluster with some versions of the transform ``t``."""

    config: KafkaConfig
    versions: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def spec(self, version: int, wasm: bytes) -> DeploymentSpec:
        return DeploymentSpec(
            name="t",
            version=f"{version}.0.0",
            digest=digest_of(wasm),
            input_topic="in",
            output_topics=("out",),
        )

    def deploy(self) -> Deployment:
        self.versions += 1
        wasm = module(self.versions)
        return deploy(self.config, self.spec(self.versions, wasm), wasm)

    def fill(self, versions: int) -> None:
        """Write what deploys of so many versions leave."""
        modules, deployments, history = list[Record](), list[Record](), list[Record]()
        for version in range(1, versions + 1):
            wasm = module(version)
            spec = self.spec(version, wasm)
            offsets = ModuleOffsets(begin=version - 1, end=version)
            made = Deployment(
                spec=spec, generation=version, state="running", updated_ms=now_ms(), module_offsets=offsets
            )
            modules.append((f"{spec.digest}/0/1".encode(), wasm, [], None))
            deployments.append((b"t", encode(made), [], None))
            event = event_record(DeploymentEvent(action="deploy", deployment=made))
            history.append((event.key, event.value, [], None))
        for topic, records in (
            (control_topics.MODULES, modules),
            (control_topics.DEPLOYMENTS, deployments),
            (control_topics.HISTORY, history),
        ):
            produce_all(self.config, topic, records)
        self.versions = versions

    def measure(self, name: str, call: Callable[[], object]) -> None:
        began, cpu = time.perf_counter(), time.process_time()
        call()
        self.seconds.setdefault(name, []).append(time.perf_counter() - began)
        self.cpu.setdefault(name, []).append(time.process_time() - cpu)

    def follower_kib(self) -> int:
        command = [sys.executable, "-c", FOLLOWER]
        return int(subprocess.run(command, env=self.environment(), stdout=subprocess.PIPE, check=True).stdout)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "WASMLINE_KAFKA_CONFIG": self.config.to_json()}


def module(version: int) -> bytes:
    """Return a module of about MODULE_BYTES, another one for each version: a custom section has the rest."""
    wasm = guest()
    return add_last_section(wasm, b"version", str(version).encode().ljust(MODULE_BYTES - len(wasm), b"."))


def start(cluster: Cluster) -> None:
    """Read what a new driver reads of its job and its deployment."""
    with closing(DeploymentTracker(cluster.config, "t")) as tracker, closing(JobTopic(cluster.config)) as jobs:
        tracker.module(tracker.running())
        jobs.last_claim("job")


def fill_list(config: KafkaConfig) -> None:
    """Write deployments on topics of their own, and jobs that run some of them."""
    topics = Topics(config)
    for number in range(TOPICS):
        topics.create(f"in-{number}", 2)
    spec = DeploymentSpec(
        name="x", version="1.0.0", digest=digest_of(guest()), input_topic="in-0", output_topics=("out",)
    )

    def deployments() -> Iterator[Record]:
        for number in range(DEPLOYMENTS):
            made = DeploymentSpec(
                name=f"d-{number}",
                version="1.0.0",
                digest=spec.digest,
                input_topic=f"in-{number % TOPICS}",
                output_topics=("out",),
            )
            document = Deployment(spec=made, generation=1, state="running", updated_ms=now_ms())
            yield made.name.encode(), encode(document), [], None

    produce_all(config, control_topics.DEPLOYMENTS, deployments())
    with closing(JobTopic(config)) as jobs, closing(StatusTopic(config)) as statuses:
        for number in range(JOBS):
            stream = StreamSpec(transform=f"d-{number}", trigger_interval="1 second")
            job = JobSpec(job=f"job-{number}", run="r", storage="s", stream=stream)
            jobs.submit(job)
            jobs.write_report(JobReport.now(job.job, "r", JobState.RUNNING))
            statuses.write(unread(job, None, f"in-{number % TOPICS}", partition) for partition in range(2))


def main() -> None:
    console = Console()
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        clusters = []
        for name, versions in (("few", FEW_VERSIONS), ("many", VERSIONS)):
            local = running.enter_context(LocalKafka(folder / name))
            cluster = Cluster(KafkaConfig({"bootstrap.servers": local.bootstrap_servers}))
            control_topics.ensure(cluster.config)
            for topic in ("in", "out"):
                Topics(cluster.config).create(topic, 2)
            with console.status(f"{versions:,} versions"):
                cluster.fill(versions)
            clusters.append(cluster)
        trackers = [running.enter_context(closing(DeploymentTracker(each.config, "t"))) for each in clusters]
        for each, tracker in zip(clusters, trackers, strict=True):  # connections, and the first read of the topic
            each.deploy()
            tracker.module(tracker.current())
        with console.status("deploys, switches, starts"):
            for _ in range(RUNS):
                for each, tracker in zip(clusters, trackers, strict=True):
                    each.measure("deploy", each.deploy)
                    each.measure("switch", lambda tracker=tracker: tracker.module(tracker.current()))  # type: ignore[misc]
                    each.measure("driver start", lambda each=each: start(each))  # type: ignore[misc]
        few, many = clusters
        memory = few.follower_kib(), many.follower_kib()
        with console.status(f"{DEPLOYMENTS:,} deployments and {JOBS:,} jobs"):
            fill_list(many.config)
        command = [sys.executable, "-m", "wasmline.cli", "list", "--format", "json"]
        times = []
        for _ in range(5):
            began = time.perf_counter()
            listed = subprocess.run(command, env=many.environment(), stdout=subprocess.PIPE, check=True)
            times.append(time.perf_counter() - began)
        assert len(json.loads(listed.stdout)) == DEPLOYMENTS + 1
    report(console, few, many, memory, statistics.median(times))


def report(console: Console, few: Cluster, many: Cluster, memory: tuple[int, int], list_s: float) -> None:
    rows = {}
    table = Table("", f"{FEW_VERSIONS} versions", f"{VERSIONS:,} versions", "ratio", "CPU ratio", "goal")
    for name in few.seconds:
        walls = [statistics.median(each.seconds[name]) for each in (few, many)]
        cpus = [statistics.median(each.cpu[name]) for each in (few, many)]
        ratios = walls[1] / walls[0], cpus[1] / cpus[0]
        rows[name] = {"seconds": walls, "ratio": ratios[0], "cpu_seconds": cpus, "cpu_ratio": ratios[1]}
        shown = [f"{each * 1_000:.0f} ms" for each in walls]
        table.add_row(name, *shown, *(f"{ratio:.2f}" for ratio in ratios), f"≤ {GOALS[name]}")
    ratio, what = memory[1] / memory[0], "memory of a follower"
    shown = [f"{each / 1024:.0f} MiB" for each in memory]
    table.add_row(what, *shown, f"{ratio:.2f}", "", f"≤ {GOALS[what]}")
    table.add_row(f"list of {DEPLOYMENTS:,}", "", f"{list_s:.2f} s", "", "", f"≤ {LIST_GOAL_S} s")
    console.print(table)
    document = {"versions": VERSIONS, **rows, "follower_kib": memory, "list_seconds": list_s}
    path = REPOSITORY / "build" / "bench" / "control.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
