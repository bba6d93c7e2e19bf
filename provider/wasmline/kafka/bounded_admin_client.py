"""An admin client whose requests end in bounded time and report the last connection error."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from wasmline.errors import BrokerUnavailable, WasmlineError
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.kafka.attempts import Attempts
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.error_mapping import translate_errors
from wasmline.kafka.reconnecting_clients import ReconnectingAdminClient

T = TypeVar("T")

Codes = Mapping[int, WasmlineError]
"""Errors to raise for particular error codes."""

REQUEST_TIMEOUT_S = 15.0
"""Maximum seconds of one request: longer than a cluster needs to replace a lost node."""

POLL_INTERVAL_S = 0.1

RETRY_INTERVAL_S, MAX_RETRY_INTERVAL_S = 0.02, 0.5
"""Seconds until a cluster in a transient state is asked again, at first and at most: each time twice as long."""

COORDINATOR_REQUEST_TIMEOUT_S = 3_600.0
"""Timeout of requests to a group's coordinator, longer than the client lives. After a request has timed out in
librdkafka, the next connection to the coordinator aborts the process (its issue 4605), so the wait is bounded here."""

ADMIN_SETTINGS = {
    # Otherwise, while a request waits for a broker that is gone, librdkafka 2.16.0 connects to that thousands of times
    # a second, whatever ``reconnect.backoff.ms`` is.
    "enable.sparse.connections": "false",
    # Otherwise a question for a topic's metadata creates the topic, with the brokers' default settings.
    "allow.auto.create.topics": "false",
}

PERMANENT_CODES = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""Errors that do not pass by waiting: wrong credentials, an unknown certificate."""


class BoundedAdminClient:
    """Waits for the client's answers; for one thread. ``client`` is the admin client, which a request may replace."""

    def __init__(self, config: KafkaConfig, timeout: float) -> None:
        self.servers = config.bootstrap_servers
        self.timeout = timeout
        self._config = config
        self._has_answer = False
        """Whether a request has had a result, or a client before this one an answer."""
        self.client, self._errors = self._connect()

    def result(self, answer: Future[T], codes: Codes | None = None, *, limit: float) -> T:
        """Return the result of ``answer``; ``codes`` maps error codes to the errors to raise.

        Raises BrokerUnavailable without an answer within ``limit`` seconds, and KafkaError as soon as the cluster
        refuses the connection.
        """
        deadline = time.monotonic() + limit + POLL_INTERVAL_S  # after the client's own, which says more
        while True:
            try:
                with translate_errors(self.servers, codes):
                    return answer.result(POLL_INTERVAL_S)
            except BrokerUnavailable as error:
                if error in (codes or {}).values() or (trouble := self._trouble()) is None:
                    raise
                raise self._explained(str(error), trouble) from error
            except TimeoutError:
                trouble = self._passing_trouble()
                if time.monotonic() > deadline:
                    raise self._explained(f"{self.servers} did not answer in time.", trouble) from None

    def settled(
        self,
        ask: Callable[[Codes, float], T],
        passing: Collection[int],
        state: str,
        *,
        learns: bool = False,
        renews: bool = False,
    ) -> T:
        """Repeat a request while the answer is one of the ``passing`` codes, and return the first other answer.

        ``ask`` takes these codes with their error, and the seconds of the attempt. Raises BrokerUnavailable with the
        message ``state``, and the last error of a connection, if they do not pass in time. With ``learns``, time-outs
        are retried as well, after a metadata refresh, which also comes before the first request if a connection was
        lost: the client alone keeps using the old leader or controller. With ``renews``, they are retried with a new
        client: the old one might carry out its request late.
        """
        unsettled = BrokerUnavailable(state, bootstrap_servers=self.servers)
        attempts = Attempts(self.timeout)
        outdated = learns and self._has_lost_connection()
        pause = RETRY_INTERVAL_S
        while True:
            if outdated:
                self._refresh(attempts)
            try:
                answer = ask(dict.fromkeys(passing, unsettled), attempts.begin())
            except BrokerUnavailable as error:
                if renews and error is not unsettled:
                    self._renew()
                if not (error is unsettled or learns or renews) or attempts.are_over:
                    if error is unsettled and self._has_lost_connection():
                        raise self._explained(f"{state}.", self._errors.last) from error
                    raise
                time.sleep(min(pause, attempts.left))
                pause = min(MAX_RETRY_INTERVAL_S, 2 * pause)
                outdated = learns
            else:
                self._has_answer = True
                return answer

    def brokers(self, topic: str | None = None) -> list[int]:
        """Return the numbers of the brokers that are up. Raises BrokerUnavailable.

        ``topic``: the only one whose metadata is asked for, in place of all. DescribeCluster is not used: librdkafka
        aborts the process over its answer while every broker is fenced, as the only one is for a while after it was
        killed.
        """

        def ask(codes: Codes, limit: float) -> list[int]:
            try:
                with translate_errors(self.servers, codes):
                    found = sorted(self.client.list_topics_once(topic, limit).brokers)
            except BrokerUnavailable as error:
                if (trouble := self._passing_trouble()) is None:
                    raise
                raise self._explained(str(error), trouble) from error
            if not found:
                raise codes[KafkaError._PARTIAL]
            return found

        return self.settled(ask, (KafkaError._PARTIAL,), f"no broker of {self.servers} is ready", learns=True)

    def _connect(self) -> tuple[ReconnectingAdminClient, _ConnectionErrors]:
        errors = _ConnectionErrors()  # no cycle with its method keeps the client's threads alive after it
        with translate_errors(self.servers):
            return ReconnectingAdminClient({**ADMIN_SETTINGS, **self._config.client(error_cb=errors.note)}), errors

    def _has_lost_connection(self) -> bool:
        """Return whether the client has lost a connection, or found none, since the last refresh."""
        self.client.poll(0)
        return self._errors.are_new

    def _refresh(self, attempts: Attempts) -> None:
        """Read the cluster's metadata; where no broker answers, with a new client, which stays if it gets an answer.

        The old one would ask the same silent broker again, for as long as that is connected. But it knows brokers that
        are not in ``bootstrap.servers``. Raises KafkaError where the cluster refuses the connection.
        """
        if not _is_answered(self.client, attempts.begin()):
            self._passing_trouble()
            if attempts.are_over:
                return
            client, errors = self._connect()
            if not _is_answered(client, attempts.begin()):
                return
            self._use(client, errors)
        self._has_answer, self._errors.are_new = True, False

    def _renew(self) -> None:
        self._use(*self._connect())

    def _use(self, client: ReconnectingAdminClient, errors: _ConnectionErrors) -> None:
        self._has_answer = self._has_answer or self.client.has_answer
        self.client, self._errors = client, errors

    def _explained(self, text: str, trouble: KafkaError | None) -> BrokerUnavailable:
        if trouble is not None:
            text += f" Last error: {trouble.str()}"
        return BrokerUnavailable(text, bootstrap_servers=self.servers)

    def _passing_trouble(self) -> KafkaError | None:
        """Return the result of ``_trouble``. Raises KafkaError where the cluster refuses the connection: no broker has
        answered. Once one has, others may refuse what they will not later, or what is not asked of them."""
        trouble, has_answer = self._trouble(), self._has_answer or self.client.has_answer
        if trouble is not None and trouble.code() in PERMANENT_CODES and not has_answer:
            raise KafkaFailed(f"{self.servers} refused the connection: {trouble.str()}") from None
        return trouble

    def _trouble(self) -> KafkaError | None:
        """Return the last error of a connection; the client reports it when it is polled."""
        self.client.poll(0)
        return self._errors.last


def _is_answered(client: ReconnectingAdminClient, limit: float) -> bool:
    """Return whether a broker tells the client the cluster's metadata within ``limit`` seconds."""
    try:
        client.list_topics_once(None, limit)
    except KafkaException:
        return False
    return True


class _ConnectionErrors:
    """The connection errors that a client reports: the ``last``, and whether any ``are_new``, until that is unset."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        self.are_new = False

    def note(self, error: KafkaError) -> None:
        """Take note of an error, unless it only counts others."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last, self.are_new = error, True
