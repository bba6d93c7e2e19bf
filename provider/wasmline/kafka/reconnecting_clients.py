"""Creates clients that connect again after they have lost all brokers, which librdkafka alone may never do.

The last broker of a cluster that shuts down names no broker in its answers. librdkafka 2.16.0 then drops those that it
knows, and may neither return to ``bootstrap.servers`` nor report an error (its issue 5301): messages wait for
``delivery.timeout.ms``, and every later request fails. No setting prevents that.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any
from weakref import WeakSet

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]

from wasmline.background_call import BackgroundCall
from wasmline.errors import ClientClosed, ClientUntested, InexactMetadata
from wasmline.kafka.attempts import Attempts
from wasmline.kafka.librdkafka_ctypes import Librdkafka

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 1.0
"""Seconds between two checks of a client."""

METADATA_RETRY_INTERVAL_S = 0.05

METADATA_RETRY_CODES = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)

CACHED = 0
"""Time-out in milliseconds of a call that is answered from what the client knows."""


def _librdkafka() -> Librdkafka | None:
    """Return the library; None where this release of the client is not known: its clients are not watched."""
    try:
        return _tried_librdkafka()
    except ClientUntested as error:  # the next client's attempt may know more
        logger.warning("a client that loses all brokers may not connect again: %s", error)
        return None


@cache
def _tried_librdkafka() -> Librdkafka | None:
    try:
        return Librdkafka()
    except InexactMetadata as error:
        logger.warning("clients that lose all brokers may not connect again: %s", error)
        return None


class ReconnectingClient:
    """Gives a client its ``bootstrap.servers`` again once the cluster's latest answer named no broker."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._servers = str(settings["bootstrap.servers"]).encode()
        self._checks_without = 0
        self._has_had_brokers = False
        self._in_use = threading.Lock()
        """Held while the client is checked, or closes: a check would use freed memory."""
        super().__init__(dict(settings))  # type: ignore[call-arg]
        self._library = _librdkafka()
        """None: this release of the client is not known."""
        if self._library:
            _watch.add(self, self._library)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return what a broker answers about ``topic``, or all, within ``timeout`` seconds; negative: any time."""
        attempts = Attempts(timeout if timeout >= 0 else math.inf)
        while True:
            try:
                return self.list_topics_once(topic, attempts.begin())
            except KafkaException as error:
                if error.args[0].code() not in METADATA_RETRY_CODES or attempts.are_over:
                    raise
            time.sleep(METADATA_RETRY_INTERVAL_S)

    def list_topics_once(self, topic: str | None, timeout: float) -> ClusterMetadata:
        """Do the same with one request, which librdkafka repeats to the broker that it has chosen."""
        return super().list_topics(topic, timeout)  # type: ignore[misc,no-any-return]

    def check(self, library: Librdkafka) -> None:
        """Add the bootstrap servers at the 1st, 2nd, 4th, 8th … check in a row that finds the client without brokers.

        Kafka names one of the brokers as the controller in each answer, and none without brokers.
        """
        if not self._in_use.acquire(blocking=False):
            return
        try:
            if self._has_brokers(library):
                self._checks_without = 0
                return
            self._checks_without += 1
            if self._checks_without.bit_count() == 1:
                library["brokers_add"](library.handle(self), self._servers)  # type: ignore[arg-type]
        except ClientClosed:
            return  # since the watch took its list
        finally:
            self._in_use.release()

    def _has_brokers(self, library: Librdkafka) -> bool:
        """Return whether the cluster's latest answer named brokers."""
        controller: int = library["controllerid"](library.handle(self), CACHED)  # type: ignore[arg-type]
        if controller >= 0:
            self._has_had_brokers = True
        return controller >= 0


FLUSH_SLICE_S = 0.1
"""Seconds of a call of ``flush``: less than the 0.2 s after which the client looks for signals, and goes on."""

DISCARD_TIMEOUT_S = 0.5
"""Seconds until the callbacks of dropped records are told, at most: those of records in flight just after the drop."""


class ReconnectingProducer(ReconnectingClient, Producer):
    """A producer with that."""

    def flush(self, timeout: float = -1) -> int:
        """Wait for deliveries, at most ``timeout`` seconds; return how many are not known yet.

        In slices: after an error, such as the fatal one of the producer, a longer call of confluent-kafka 2.16 goes on
        with the next callbacks while that error is set. The delivery of one is lost, and what is raised no exception.
        """
        deadline = time.monotonic() + timeout if timeout >= 0 else math.inf
        while True:
            left = deadline - time.monotonic()
            unknown: int = super().flush(max(0.0, min(left, FLUSH_SLICE_S)))
            if not unknown or left <= FLUSH_SLICE_S:
                return unknown

    def discard(self) -> None:
        """Drop the records that are not written yet, and tell the callbacks of all so.

        The client refers to these until then, and they to what uses it: no garbage collector sees that cycle. Callers
        may be handling an exception.
        """
        BackgroundCall(self._discard).result()

    def _discard(self) -> None:
        self.purge()  # confluent-kafka 2.16 has ``blocking`` the wrong way round: by default it waits for no thread
        deadline = time.monotonic() + DISCARD_TIMEOUT_S
        while len(self) and time.monotonic() < deadline:
            with suppress(KafkaException):  # the error that has ended this producer: callbacks follow it
                self.poll(0.01)

    def fatal_error(self) -> KafkaError | None:
        """Return the error that has ended this producer: from then on, its calls and its records fail with other codes.

        None: there is none, or this release of the client is not known.
        """
        return self._library.fatal_error(self) if self._library else None

    def close(self) -> bool:
        with self._in_use:
            return super().close()


class ReconnectingConsumer(ReconnectingClient, Consumer):
    """A consumer with that; as Java's, and unlike librdkafka's default, it returns no corrupt bytes."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__({"check.crcs": "true", **settings})

    def close(self) -> None:
        with self._in_use:
            super().close()


class ReconnectingAdminClient(ReconnectingClient, AdminClient):
    """An admin client with that; it has no ``close``."""

    @property
    def has_answer(self) -> bool:
        """Whether a broker has ever answered; False where this release of the client is not known."""
        return self._library is not None and (self._has_brokers(self._library) or self._has_had_brokers)


class _Watch:
    """Checks the clients of this process in a thread, for as long as there are any."""

    def __init__(self) -> None:
        self._clients: WeakSet[ReconnectingClient] = WeakSet()
        self._changing = threading.Lock()
        self._runs = False

    def add(self, client: ReconnectingClient, library: Librdkafka) -> None:
        with self._changing:
            self._clients.add(client)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, args=[library], name="wasmline-broker-watch", daemon=True).start()

    def _run(self, library: Librdkafka) -> None:
        while self._check_all(library):
            time.sleep(CHECK_INTERVAL_S)

    def _check_all(self, library: Librdkafka) -> bool:
        """Check each client; return whether there was any. No client outlives its user by more than a check."""
        with self._changing:
            clients = list(self._clients)
            self._runs = bool(clients)
        for client in clients:
            try:
                client.check(library)
            except Exception:  # one client's trouble leaves the others watched
                logger.exception("a client that loses all brokers may not connect again: it cannot be checked")
                with self._changing:
                    self._clients.discard(client)
        return bool(clients)


_watch = _Watch()


def _after_fork() -> None:
    global _watch
    _watch = _Watch()  # a fork does not copy the thread, and its lock may be held forever


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
