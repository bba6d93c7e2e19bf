"""Module bytes in a compacted topic, in chunks below the broker's message limit, addressed by their digest.

Modules that nothing refers to are deleted by ``module_pruning``, which has the argument why no deployment refers to a
deleted one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from wasmline.control import control_topics
from wasmline.control.deployment_spec import ModuleOffsets
from wasmline.digests import digest_of
from wasmline.errors import DigestMismatch, OffsetOutOfRange, VersionNotFound
from wasmline.kafka import CompactedTopic, KafkaConfig, Topics, produce_all, read_range, read_to_end

CHUNK_BYTES = 512 * 1024

CHUNK_KEY = re.compile(rb"(sha256:[0-9a-f]{64})/([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModule:
    """A module that every in-sync replica has, and the offsets of the module topic between which its chunks are.

    kept_to: below this offset of the module topic, no record deletes it.
    """

    digest: str
    offsets: ModuleOffsets
    kept_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleChunks:
    """The chunks under one digest: the sizes in bytes by the number of chunks that the module was written in, and by
    index."""

    digest: str
    sizes: Mapping[int, Mapping[int, int]]

    @property
    def is_complete(self) -> bool:
        """Whether all chunks of one number are there."""
        return any(len(found) == count for count, found in self.sizes.items())

    @property
    def size_bytes(self) -> int:
        """The bytes of all chunks."""
        return sum(sum(found.values()) for found in self.sizes.values())

    @property
    def keys(self) -> list[bytes]:
        """The keys of all chunks."""
        return [_key(self.digest, index, count) for count, found in self.sizes.items() for index in found]


class ModuleDeleted(Exception):
    """Another client has deleted a module since it was stored: it has to be stored again."""


class ModuleStore:
    """Stores modules on the user's cluster, so that a running job needs only Kafka to switch to another one.

    The key of chunk i of n is ``digest/i/n``. A module is present only if all chunks of one n are there and their
    digest matches.
    """

    def __init__(self, config: KafkaConfig) -> None:
        control_topics.ensure(config)
        self._config = config
        self._topics = Topics(config)

    def decided_end(self) -> int:
        """Return the offset of the module topic below which no transaction is open."""
        return self._topics.end_offsets(control_topics.MODULES)[0]

    def put(self, wasm: bytes, expected: StoredModule | None = None) -> StoredModule:
        """Store ``wasm`` on every in-sync replica, unless it is as ``expected``, and read it back.

        ``expected`` is what a current deployment names, with the ``decided_end`` from before the deployments were read.
        Raises ModuleDeleted if another client deletes it meanwhile.
        """
        digest = digest_of(wasm)
        if expected is not None and self._at(digest, expected.offsets) is not None:
            return expected
        begin = self._written_end()
        chunks = [wasm[start : start + CHUNK_BYTES] for start in range(0, len(wasm), CHUNK_BYTES)]
        produce_all(
            self._config,
            control_topics.MODULES,
            ((_key(digest, index, len(chunks)), chunk, [], None) for index, chunk in enumerate(chunks)),
        )
        end = self._written_end()
        offsets = ModuleOffsets(begin=begin, end=end)
        try:
            self.get(digest, offsets)
        except VersionNotFound as error:
            raise ModuleDeleted(digest) from error
        return StoredModule(digest=digest, offsets=offsets, kept_to=end)

    def require_kept(self, module: StoredModule) -> StoredModule:
        """Return the module as it is kept by now. Raises ModuleDeleted if a record that was written deletes a chunk.

        Waits for the transactions that are open in the module topic. Raises BrokerUnavailable.
        """
        prefix, end = f"{module.digest}/".encode(), self._written_end()
        for record in read_range(self._config, control_topics.MODULES, {0: (module.kept_to, end)}):
            if record.value() is None and (record.key() or b"").startswith(prefix):
                raise ModuleDeleted(module.digest)
        return replace(module, kept_to=max(module.kept_to, end))

    def modules(self) -> list[ModuleChunks]:
        """Return the chunks of every module, by digest; reads the whole topic. Raises BrokerUnavailable.

        Chunks without a well-formed key are left out, and so are records that a transaction has still open.
        """
        found: dict[str, dict[int, dict[int, int]]] = {}
        for record in read_to_end(self._config, control_topics.MODULES):
            if (chunk := _chunk(record.key() or b"")) is None:
                continue
            digest, index, count = chunk
            if (value := record.value()) is not None:
                found.setdefault(digest, {}).setdefault(count, {})[index] = len(value)
            else:
                found.get(digest, {}).get(count, {}).pop(index, None)
        sizes = {digest: {n: chunks for n, chunks in counts.items() if chunks} for digest, counts in found.items()}
        return [ModuleChunks(digest=digest, sizes=sizes[digest]) for digest in sorted(sizes) if sizes[digest]]

    def get(self, digest: str, offsets: ModuleOffsets | None = None) -> bytes:
        """Return the module, verified. Raises VersionNotFound for a missing chunk, DigestMismatch for wrong bytes.

        The topic is read between ``offsets``; all of it if they are unknown, or if the module is not there any more,
        as when the same module was stored again and the topic was compacted. A module that was deleted later is still
        there until the topic is compacted.
        """
        if offsets is not None and (found := self._at(digest, offsets)) is not None:
            return found
        actual = None
        for wasm in _complete(digest, self._chunks(digest)):
            actual = digest_of(wasm)
            if actual == digest:
                return wasm
        if actual is None:
            raise VersionNotFound(
                f"no module {digest} in {control_topics.MODULES}: deploy it", name=digest, version=None
            )
        raise DigestMismatch(f"{control_topics.MODULES} holds {actual} under {digest}", expected=digest, actual=actual)

    def _written_end(self) -> int:
        return self._topics.written_offsets(control_topics.MODULES)[0]

    def _at(self, digest: str, offsets: ModuleOffsets) -> bytes | None:
        """Return the module whose chunks are between ``offsets``, None if it is not there."""
        if self._written_end() < offsets.end:  # the topic was created again
            return None
        chunks: dict[bytes, bytes] = {}
        try:
            for each in read_range(self._config, control_topics.MODULES, {0: (offsets.begin, offsets.end)}):
                if not (key := each.key() or b"").startswith(digest.encode()):
                    continue
                if (value := each.value()) is not None:
                    chunks[key] = value
                else:
                    chunks.pop(key, None)
        except OffsetOutOfRange:  # its beginning was deleted
            return None
        return next((wasm for wasm in _complete(digest, chunks.items()) if digest_of(wasm) == digest), None)

    def _chunks(self, digest: str) -> Iterable[tuple[bytes, bytes]]:
        """Return the chunks that are stored under ``digest``, with their keys."""
        prefix = f"{digest}/".encode()
        topic = CompactedTopic(self._config, control_topics.MODULES, keep=lambda key: key.startswith(prefix))
        try:
            return topic.read().items()
        finally:
            topic.close()


def _key(digest: str, index: int, count: int) -> bytes:
    return f"{digest}/{index}/{count}".encode()


def _chunk(key: bytes) -> tuple[str, int, int] | None:
    """Return digest, index and count of the key of a chunk; None for another key."""
    parts = CHUNK_KEY.fullmatch(key)
    if parts is None or int(parts[2]) >= int(parts[3]) or key != _key(parts[1].decode(), int(parts[2]), int(parts[3])):
        return None
    return parts[1].decode(), int(parts[2]), int(parts[3])


def _complete(digest: str, chunks: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Yield each complete module among chunks of ``digest``: one for each number of chunks it was written in."""
    by_count: dict[int, dict[int, bytes]] = defaultdict(dict)
    for key, value in chunks:
        if (chunk := _chunk(key)) and chunk[0] == digest:
            by_count[chunk[2]][chunk[1]] = value
    for count, found in by_count.items():
        if len(found) == count:
            yield b"".join(found[index] for index in range(count))
