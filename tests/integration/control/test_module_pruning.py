"""Modules that nothing refers to are deleted, on a real broker, while other clients deploy at each of the steps."""

from __future__ import annotations

import itertools
import json
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from threading import Event

import pytest
from click.testing import CliRunner

from wasmline.cli import main
from wasmline.cli.confirmation import user_name
from wasmline.control import (
    ChangeCause,
    Deployment,
    DeploymentEvent,
    DeploymentSpec,
    DeploymentTopic,
    DriverClaim,
    ModuleChunks,
    ModuleOffsets,
    ModulePruning,
    ModulePruningPlan,
    ModuleStore,
    control_topics,
    deploy,
    deployment_topic,
    module_store,
    plan_deployment_rollback,
    plan_module_pruning,
    prune_modules,
    read_module_events,
    read_modules,
    roll_back_deployment,
)
from wasmline.control.module_pruning import MAX_MODULES, TRANSACTIONAL_ID
from wasmline.control.module_references import ModuleReferenceReader, ModuleReferences
from wasmline.control.module_store import CHUNK_BYTES, StoredModule
from wasmline.digests import digest_of
from wasmline.documents import encode
from wasmline.errors import Conflict, InvalidSpec, UnsupportedSpecVersion, VersionNotFound
from wasmline.kafka import CompactedTopic, KafkaConfig, RecordWriter, Topics, produce_all, producer
from wasmline.local.process import wait_until
from wasmline.testing.kafka import RunningKafka

CAUSE = ChangeCause(reason="the topic is large", by="ada")


class Cluster:
    """A cluster on which these tests deploy, and nothing else does."""

    def __init__(self, kafka: RunningKafka) -> None:
        self.config: KafkaConfig = kafka.config
        self.source, self.target = kafka.topic(), kafka.topic()
        self.modules = ModuleStore(self.config)
        self.deployments = DeploymentTopic(self.config)
        self.topics = Topics(self.config)
        self.table = CompactedTopic(self.config, control_topics.MODULES)
        self.writer = RecordWriter(self.config)

    def close(self) -> None:
        self.deployments.close()
        self.table.close()
        self.writer.close()

    def spec(self, name: str, wasm: bytes, version: int = 1) -> DeploymentSpec:
        return DeploymentSpec(
            name=name,
            version=f"{version}.0.0",
            digest=digest_of(wasm),
            input_topic=self.source,
            output_topics=(self.target,),
        )

    def write(self, topic: str, key: str, value: bytes | None) -> None:
        self.writer.write(topic, [(key.encode(), value, None, None)])

    def store(self, wasm: bytes) -> ModuleOffsets:
        """Store a module of one chunk, and return its offsets."""
        begin = self.modules_end()
        self.write(control_topics.MODULES, f"{digest_of(wasm)}/0/1", wasm)
        return ModuleOffsets(begin=begin, end=self.modules_end())

    def store_first_chunk(self, wasm: bytes) -> None:
        """Store a module as a deployer does that is killed after the first of two chunks."""
        self.write(control_topics.MODULES, f"{digest_of(wasm)}/0/2", wasm[:CHUNK_BYTES])

    def modules_end(self) -> int:
        return self.topics.written_offsets(control_topics.MODULES)[0]

    def generation(self, name: str, wasm: bytes, version: int = 1) -> Deployment:
        """Deploy a module as a client does for which no other deletes it."""
        return self.deployments.deploy(self.spec(name, wasm, version), module_offsets=self.store(wasm))

    def deploy(self, name: str, wasm: bytes, version: int = 1) -> Deployment:
        return deploy(self.config, self.spec(name, wasm, version), wasm)

    def prune(self, plan: ModulePruningPlan | None = None, *, keep_generations: int | None = None) -> ModulePruning:
        plan = plan or plan_module_pruning(self.config, keep_generations=keep_generations)
        return prune_modules(self.config, plan, cause=CAUSE)

    def wait_for_markers(self) -> None:
        """Wait until transactions that have ended are so in the topics in which a deletion looks for open ones."""
        for topic in (control_topics.DEPLOYMENTS, control_topics.HISTORY):
            with closing(CompactedTopic(self.config, topic)) as table:
                assert wait_until(lambda table=table: table.read_decided() is not None, 30)  # type: ignore[misc]

    def stored(self) -> set[str]:
        """Return the digests that have a chunk."""
        return {key.decode().partition("/")[0] for key in self.table.read()}

    def wasmline(self, *arguments: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(main, [*arguments, "-X", f"bootstrap.servers={self.config.bootstrap_servers}"])
        return done.exit_code, done.stdout, done.stderr

    def require_deployed(self, name: str, wasm: bytes) -> None:
        """Assert that the current deployment has its module, where it says so and in the compacted topic."""
        deployed = self.deployments.get(name)
        assert deployed.spec.digest == digest_of(wasm)
        assert deployed.module_offsets is not None
        assert self.modules._at(deployed.spec.digest, deployed.module_offsets) == wasm
        assert wasm in module_store._complete(deployed.spec.digest, self.table.read().items())


@pytest.fixture(scope="module")
def cluster(stoppable_kafka: RunningKafka) -> Iterator[Cluster]:
    with closing(Cluster(stoppable_kafka)) as made:
        yield made


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def module(size: int = 40) -> bytes:
    """Return a module that no other test has."""
    return uuid.uuid4().bytes.ljust(size, b"\0")


def plan_of(*modules: bytes, keep_generations: int | None = None) -> ModulePruningPlan:
    """Return the plan to delete modules of one chunk."""
    chunks = tuple(ModuleChunks(digest=digest_of(wasm), sizes={1: {0: len(wasm)}}) for wasm in modules)
    return ModulePruningPlan(modules=chunks, keep_generations=keep_generations, lost_generations=())


# -- what is deleted ---------------------------------------------------------------------------------------------------


def test_only_modules_that_nothing_refers_to_are_deleted(cluster: Cluster, name: str) -> None:
    before, current, claimed, lost, failed, partial = wasm = [module() for _ in range(6)]
    cluster.generation(name, before)
    cluster.generation(name, current, 2)
    for each in (claimed, lost, failed):
        cluster.store(each)
    cluster.store_first_chunk(partial)
    deployment = Deployment(spec=cluster.spec(name, claimed), generation=9, state="running", updated_ms=0)
    claim = DriverClaim(run="r", checkpoint="c", batch_id=0, deployment=deployment)
    cluster.write(control_topics.JOBS, f"{name}-job/batch/earlier-topic", encode(claim))
    deployment = Deployment(spec=cluster.spec(name, lost), generation=1, state="running", updated_ms=0)
    event = DeploymentEvent(action="deploy", deployment=deployment)
    cluster.write(control_topics.HISTORY, f"{name}.other/7/event/x", encode(event))

    status, shown, _ = cluster.wasmline("modules", "list", "--json")
    assert status == 0
    states = {each["digest"]: (each["state"], each["complete"]) for each in json.loads(shown)}
    assert [states[digest_of(each)] for each in wasm] == [
        ("history", True),
        ("deployed", True),
        ("claimed", True),
        ("history", True),
        ("unreferenced", True),
        ("unreferenced", False),
    ]
    done = cluster.prune()
    assert {*done.deleted} == {digest_of(failed), digest_of(partial)}
    assert cluster.stored() == {digest_of(each) for each in (before, current, claimed, lost)}
    [event_of_pruning] = read_module_events(cluster.config)
    assert (event_of_pruning.digests, event_of_pruning.size_bytes) == (done.deleted, done.size_bytes)
    assert event_of_pruning.cause == CAUSE


def test_all_chunks_of_a_module_are_deleted_and_stored_again_by_the_next_deploy(cluster: Cluster, name: str) -> None:
    wasm = module(2 * CHUNK_BYTES + 1)
    cluster.modules.put(wasm)
    assert cluster.prune().size_bytes == len(wasm)
    assert digest_of(wasm) not in cluster.stored()
    cluster.store_first_chunk(wasm)
    with pytest.raises(VersionNotFound):
        cluster.modules.get(digest_of(wasm))
    cluster.deploy(name, wasm)
    cluster.require_deployed(name, wasm)


def test_more_modules_than_one_transaction_takes_are_deleted(cluster: Cluster) -> None:
    modules = [module() for _ in range(MAX_MODULES + 1)]
    before = len(read_module_events(cluster.config))
    assert len(cluster.prune(plan_of(*modules)).deleted) == len(modules)
    assert len(read_module_events(cluster.config)) == before + 2


# -- generations without a module --------------------------------------------------------------------------------------


def test_modules_of_older_generations_are_deleted_unless_they_are_claimed(cluster: Cluster, name: str) -> None:
    wasm = [module() for _ in range(4)]
    first, *_ = [cluster.generation(name, each, version) for version, each in enumerate(wasm, 1)]
    claim = DriverClaim(run="r", checkpoint="c", batch_id=0, deployment=first)
    cluster.write(control_topics.JOBS, f"{name}-job/batch", encode(claim))
    with pytest.raises(InvalidSpec):
        plan_module_pruning(cluster.config, keep_generations=0)
    plan = plan_module_pruning(cluster.config, keep_generations=2)
    assert [each.generation for each in plan.lost_generations if each.transform == name] == [2]
    cluster.prune(plan)
    assert cluster.stored() & {digest_of(each) for each in wasm} == {digest_of(wasm[each]) for each in (0, 2, 3)}
    assert read_module_events(cluster.config)[-1].keep_generations == 2


def test_a_rollback_before_the_topic_is_compacted_stores_the_deleted_module_again(cluster: Cluster, name: str) -> None:
    first = module()
    cluster.generation(name, first)
    cluster.generation(name, module(), 2)
    assert cluster.prune(plan_of(first, keep_generations=1)).deleted == (digest_of(first),)
    roll_back_deployment(cluster.config, plan_deployment_rollback(cluster.config, name), cause=CAUSE)
    cluster.require_deployed(name, first)


def test_a_rollback_to_a_generation_without_a_module_names_the_registry(cluster: Cluster, name: str) -> None:
    cluster.deployments.deploy(cluster.spec(name, module()), module_offsets=ModuleOffsets(begin=0, end=0))
    second = cluster.generation(name, module(), 2)
    status, _, told = cluster.wasmline("rollback", name, "--reason", "wrong", "--yes")
    assert status == 1
    assert f"generation 1 of {name} cannot be deployed again" in told
    assert f"from the registry: wasmline deploy {name}@1.0.0" in told
    assert cluster.deployments.get(name) == second


# -- records of other releases -----------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_read_may_need_any_module(cluster: Cluster) -> None:
    wasm = module()
    cluster.store(wasm)
    keys = [
        (control_topics.DEPLOYMENTS, "newer"),
        (control_topics.HISTORY, "newer/3/event/x"),
        (control_topics.JOBS, "newer/batch"),
        (control_topics.JOBS, "newer/batch/topic-id"),
    ]
    for topic, key in keys:
        cluster.write(topic, key, b'{"spec_version": 2}')
    try:
        unreadable = read_modules(cluster.config).references.unreadable
        named = [f"record {key} of {topic}: not a " for topic, key in keys]
        assert len(unreadable) == len(named)
        assert all(map(str.startswith, unreadable, named))
        with pytest.raises(UnsupportedSpecVersion, match=f"no module is deleted: .*{named[0]}.*and 3 others"):
            plan_module_pruning(cluster.config)
        with pytest.raises(UnsupportedSpecVersion, match="no module is deleted: "):
            cluster.prune(plan_of(wasm))
    finally:
        for topic, key in keys:
            cluster.write(topic, key, None)
    assert cluster.prune(plan_of(wasm)).deleted == (digest_of(wasm),)


# -- deploys at the same moment ----------------------------------------------------------------------------------------


def once(patch: pytest.MonkeyPatch, owner: type, method: str, before: Callable[[], object], *, call: int = 1) -> None:
    """Call ``before`` at the first call of a method, or a later one, from whichever thread, and then the method."""
    called, calls = getattr(owner, method), itertools.count(1)

    def counted(*arguments: object, **options: object) -> object:
        if next(calls) == call:
            before()
        return called(*arguments, **options)

    patch.setattr(owner, method, counted)


def test_a_module_that_is_deleted_before_its_generation_is_written_is_stored_again(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wasm, pruned = module(), list[ModulePruning]()

    def produced(*arguments: object) -> int:
        written = produce_all(*arguments)  # type: ignore[arg-type]
        if not pruned:
            pruned.append(cluster.prune(plan_of(wasm)))  # before it is read back
        return written

    monkeypatch.setattr(module_store, "produce_all", produced)
    once(monkeypatch, DeploymentTopic, "deploy", lambda: pruned.append(cluster.prune(plan_of(wasm))))
    cluster.deploy(name, wasm)
    assert [each.deleted for each in pruned] == [(digest_of(wasm),), (digest_of(wasm),)]
    cluster.require_deployed(name, wasm)


def test_a_module_of_another_deployment_that_is_replaced_and_deleted_meanwhile_is_stored_again(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wasm, other = module(), f"{name}.other"
    first = cluster.generation(other, wasm)
    found: list[StoredModule] = []
    put = ModuleStore.put

    def finds(store: ModuleStore, data: bytes, expected: StoredModule | None = None) -> StoredModule:
        stored = put(store, data, expected)
        if not found:
            found.append(stored)
            cluster.generation(other, module(), 2)
            assert cluster.prune(plan_of(wasm, keep_generations=1)).deleted
        return stored

    monkeypatch.setattr(ModuleStore, "put", finds)
    deployed = cluster.deploy(name, wasm)
    assert found[0].offsets == first.module_offsets != deployed.module_offsets
    cluster.require_deployed(name, wasm)


def test_a_deletion_yields_to_a_generation_that_is_written_and_not_committed(
    cluster: Cluster, name: str, thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    wasm, has_read, is_written, yielded = module(), Event(), Event(), Event()
    read, read_decided = ModuleReferenceReader.read, ModuleReferenceReader.read_decided

    def reads_early(reader: ModuleReferenceReader) -> ModuleReferences:
        references = read(reader)
        has_read.set()
        assert is_written.wait(30)
        return references

    def yields(reader: ModuleReferenceReader) -> ModuleReferences | None:
        if (references := read_decided(reader)) is None:
            yielded.set()
        return references

    def is_not_committed() -> None:
        is_written.set()
        assert yielded.wait(30)

    monkeypatch.setattr(ModuleReferenceReader, "read", reads_early)
    monkeypatch.setattr(ModuleReferenceReader, "read_decided", yields)
    once(monkeypatch, ModuleStore, "require_kept", is_not_committed, call=2)  # in the transaction
    pruning = thread.submit(cluster.prune, plan_of(wasm))
    assert has_read.wait(30)
    cluster.deploy(name, wasm)
    assert pruning.result(60).kept == (digest_of(wasm),)
    cluster.require_deployed(name, wasm)


def test_a_generation_that_is_committed_and_replaced_before_a_deletion_reads_again_keeps_its_module(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced, unneeded = module(), module()

    def deployed() -> None:
        cluster.generation(name, replaced)
        cluster.generation(name, module(), 2)

    once(monkeypatch, ModuleReferenceReader, "read_decided", deployed)
    done = cluster.prune(plan_of(replaced, unneeded))
    assert (done.deleted, done.kept) == ((digest_of(unneeded),), (digest_of(replaced),))
    assert digest_of(replaced) in cluster.stored()


def test_a_module_that_is_stored_while_it_is_being_deleted_is_there_afterwards(
    cluster: Cluster, name: str, thread: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    wasm, deploying = module(), list[Future[Deployment]]()

    def stores() -> None:
        end = cluster.modules_end()
        deploying.append(thread.submit(cluster.deploy, name, wasm))
        assert wait_until(lambda: cluster.modules_end() > end, 30)

    once(monkeypatch, ModuleReferenceReader, "read_decided", stores)
    assert cluster.prune(plan_of(wasm)).deleted == (digest_of(wasm),)
    deploying[0].result(60)
    cluster.require_deployed(name, wasm)


def test_a_module_that_is_deleted_at_each_attempt_is_not_deployed(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_kept, wasm = ModuleStore.require_kept, module()

    def deleted(modules: ModuleStore, stored: StoredModule) -> None:
        cluster.write(control_topics.MODULES, f"{digest_of(wasm)}/0/1", None)
        require_kept(modules, stored)

    monkeypatch.setattr(ModuleStore, "require_kept", deleted)
    monkeypatch.setattr(deployment_topic, "STORE_ATTEMPTS", 1)
    with pytest.raises(Conflict, match="deleted at each of 1 attempts"):
        cluster.deploy(name, wasm)
    assert cluster.deployments.find(name) is None


# -- deletions that end early ------------------------------------------------------------------------------------------


def test_a_deletion_that_is_killed_is_made_by_the_next_one(cluster: Cluster) -> None:
    wasm = module()
    cluster.store(wasm)
    killed = producer(cluster.config, **{"transactional.id": TRANSACTIONAL_ID, "transaction.timeout.ms": "60000"})
    killed.init_transactions(30)
    killed.begin_transaction()
    killed.produce(control_topics.MODULES, key=f"{digest_of(wasm)}/0/1".encode(), value=None)
    assert killed.flush(30) == 0
    assert cluster.prune(plan_of(wasm)).deleted == (digest_of(wasm),)
    assert digest_of(wasm) not in cluster.stored()


def test_a_deploy_waits_for_a_killed_deletion_before_it_opens_its_transaction(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wasm, waits = module(), Event()
    cluster.deploy(name, wasm)
    killed = producer(cluster.config, **{"transactional.id": TRANSACTIONAL_ID, "transaction.timeout.ms": "60000"})
    killed.init_transactions(30)
    killed.begin_transaction()
    killed.produce(control_topics.MODULES, key=f"{digest_of(module())}/0/1".encode(), value=None)
    assert killed.flush(30) == 0
    once(monkeypatch, ModuleStore, "require_kept", waits.set)
    with ThreadPoolExecutor(1) as thread, closing(CompactedTopic(cluster.config, control_topics.DEPLOYMENTS)) as table:
        deployed = thread.submit(cluster.deploy, name, wasm, 2)
        assert waits.wait(30)
        assert not wait_until(lambda: table.read_decided() is None, 1.0), "other clients would wait with it"
        killed.abort_transaction(30)
        deployed.result(60)
    cluster.require_deployed(name, wasm)


def test_of_two_deletions_the_later_one_is_made(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    wasm = module()
    cluster.wait_for_markers()  # of other tests
    before, done = len(read_module_events(cluster.config)), list[ModulePruning]()

    def delete_first() -> None:
        done.append(cluster.prune(plan_of(wasm)))
        cluster.wait_for_markers()

    once(monkeypatch, ModuleReferenceReader, "read_decided", delete_first)
    with pytest.raises(Conflict, match="another client deletes modules"):
        cluster.prune(plan_of(wasm))
    assert done[0].deleted == (digest_of(wasm),)
    assert len(read_module_events(cluster.config)) == before + 1


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_command_line_lists_prunes_and_keeps_the_author(cluster: Cluster, name: str) -> None:
    first, second, unused = module(), module(), module()
    cluster.generation(name, first)
    cluster.generation(name, second, 2)
    cluster.store(unused)
    status, shown, _ = cluster.wasmline("modules", "list")
    assert status == 0
    rows = {row.split()[0]: row.split(maxsplit=4)[1:] for row in shown.splitlines()}
    assert rows["DIGEST"] == ["BYTES", "CHUNKS", "STATE", "REFERENCES"]
    assert rows[digest_of(first)] == ["40", "complete", "history", f"{name}@1.0.0 (generation 1)"]
    assert rows[digest_of(second)] == ["40", "complete", "deployed", f"{name}@2.0.0 (generation 2)"]
    assert rows[digest_of(unused)] == ["40", "complete", "unreferenced", "-"]

    options = ("modules", "prune", "--keep-generations", "1", "--reason", "full")
    status, _, told = cluster.wasmline(*options)
    assert (status, "add --yes" in told) == (2, True)
    assert f"transform {name}: no rollback to this one any more (generation 1)" in told
    assert digest_of(unused) in cluster.stored()

    status, shown, told = cluster.wasmline(*options, "--yes")
    assert status == 0
    assert f"{digest_of(unused)}: 40 bytes\n" in told
    assert re.fullmatch(r"\d+ modules deleted, \d+ bytes\n", shown)
    assert not {digest_of(first), digest_of(unused)} & cluster.stored()
    nothing = json.loads(cluster.wasmline(*options, "--yes", "--json")[1])
    assert nothing == {"deleted": [], "kept": [], "size_bytes": 0}
    row = cluster.wasmline("modules", "history")[1].splitlines()[-1].split()
    assert (row[1], row[-4:]) == ("prune", ["last", "1", user_name(), "full"])
