"""Module bytes in a compacted topic, in chunks below the broker's message limit, addressed by their digest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from wasmline.control import control_topics
from wasmline.digests import digest_of
from wasmline.errors import DigestMismatch, VersionNotFound
from wasmline.kafka import CompactedTopic, KafkaConfig, produce_all

CHUNK_BYTES = 512 * 1024


class ModuleStore:
    """Stores modules on the user's cluster, so that a running job needs only Kafka to switch to another one.

    The key of chunk i of n is ``digest/i/n``. A module is present only if all chunks of one n are there and their
    digest matches.
    """

    def __init__(self, config: KafkaConfig) -> None:
        control_topics.ensure(config)
        self._config = config

    def put(self, wasm: bytes) -> str:
        """Store ``wasm`` on every in-sync replica unless it is present, read it back, and return its digest."""
        digest = digest_of(wasm)
        try:
            self.get(digest)
        except (VersionNotFound, DigestMismatch):
            chunks = [wasm[start : start + CHUNK_BYTES] for start in range(0, len(wasm), CHUNK_BYTES)]
            produce_all(
                self._config,
                control_topics.MODULES,
                ((f"{digest}/{index}/{len(chunks)}".encode(), chunk, [], None) for index, chunk in enumerate(chunks)),
            )
            self.get(digest)
        return digest

    def get(self, digest: str) -> bytes:
        """Return the module, verified. Raises VersionNotFound for a missing chunk, DigestMismatch for wrong bytes."""
        actual = None
        for wasm in self._stored(digest):
            actual = digest_of(wasm)
            if actual == digest:
                return wasm
        if actual is None:
            raise VersionNotFound(
                f"no module {digest} in {control_topics.MODULES}: deploy it", name=digest, version=None
            )
        raise DigestMismatch(f"{control_topics.MODULES} holds {actual} under {digest}", expected=digest, actual=actual)

    def _stored(self, digest: str) -> Iterator[bytes]:
        """Yield each complete module stored under ``digest``: one for each number of chunks it was written in."""
        prefix = f"{digest}/".encode()
        topic = CompactedTopic(self._config, control_topics.MODULES, keep=lambda key: key.startswith(prefix))
        try:
            table = topic.read()
        finally:
            topic.close()
        by_count: dict[int, dict[int, bytes]] = defaultdict(dict)
        for key, value in table.items():
            index, _, total = key.removeprefix(prefix).partition(b"/")
            by_count[int(total)][int(index)] = value
        for count, chunks in by_count.items():
            if chunks.keys() == set(range(count)):
                yield b"".join(chunks[index] for index in range(count))
