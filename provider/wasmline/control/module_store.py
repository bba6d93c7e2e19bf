"""Module bytes in a compacted topic, in chunks below the broker's message limit, addressed by their digest."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wasmline.control import control_topics
from wasmline.control.deployment_spec import ModuleOffsets
from wasmline.digests import digest_of
from wasmline.errors import DigestMismatch, OffsetOutOfRange, VersionNotFound
from wasmline.kafka import CompactedTopic, KafkaConfig, Topics, produce_all, read_range

CHUNK_BYTES = 512 * 1024

CHUNK_KEY = re.compile(rb"(sha256:[0-9a-f]{64})/([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModule:
    """A module that every in-sync replica has, and the offsets of the module topic between which its chunks are."""

    digest: str
    offsets: ModuleOffsets


class ModuleStore:
    """Stores modules on the user's cluster, so that a running job needs only Kafka to switch to another one.

    The key of chunk i of n is ``digest/i/n``. A module is present only if all chunks of one n are there and their
    digest matches.
    """

    def __init__(self, config: KafkaConfig) -> None:
        control_topics.ensure(config)
        self._config = config

    def put(self, wasm: bytes, expected_at: ModuleOffsets | None = None) -> StoredModule:
        """Store ``wasm`` on every in-sync replica, unless it is ``expected_at`` these offsets, and read it back."""
        digest = digest_of(wasm)
        if expected_at is not None and self._at(digest, expected_at) is not None:
            return StoredModule(digest=digest, offsets=expected_at)
        topics = Topics(self._config)
        begin = topics.end_offsets(control_topics.MODULES)[0]
        chunks = [wasm[start : start + CHUNK_BYTES] for start in range(0, len(wasm), CHUNK_BYTES)]
        produce_all(
            self._config,
            control_topics.MODULES,
            ((f"{digest}/{index}/{len(chunks)}".encode(), chunk, [], None) for index, chunk in enumerate(chunks)),
        )
        offsets = ModuleOffsets(begin=begin, end=topics.end_offsets(control_topics.MODULES)[0])
        self.get(digest, offsets)
        return StoredModule(digest=digest, offsets=offsets)

    def get(self, digest: str, offsets: ModuleOffsets | None = None) -> bytes:
        """Return the module, verified. Raises VersionNotFound for a missing chunk, DigestMismatch for wrong bytes.

        The topic is read between ``offsets``; all of it if they are unknown, or if the module is not there any more,
        as when the same module was stored again and the topic was compacted.
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

    def _at(self, digest: str, offsets: ModuleOffsets) -> bytes | None:
        """Return the module whose chunks are between ``offsets``, None if it is not there."""
        if Topics(self._config).end_offsets(control_topics.MODULES)[0] < offsets.end:  # the topic was created again
            return None
        try:
            read = read_range(self._config, control_topics.MODULES, {0: (offsets.begin, offsets.end)})
            chunks = {
                key: each.value() or b"" for each in read if (key := each.key() or b"").startswith(digest.encode())
            }
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


def _complete(digest: str, chunks: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Yield each complete module among chunks of ``digest``: one for each number of chunks it was written in."""
    by_count: dict[int, dict[int, bytes]] = defaultdict(dict)
    for key, value in chunks:
        if parts := CHUNK_KEY.fullmatch(key):
            name, index, count = parts.groups()
            if name == digest.encode() and int(index) < int(count):
                by_count[int(count)][int(index)] = value
    for count, found in by_count.items():
        if len(found) == count:
            yield b"".join(found[index] for index in range(count))
