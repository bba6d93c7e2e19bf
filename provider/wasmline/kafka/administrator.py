"""An admin client whose requests end in bounded time, with the reason why where there is one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from wasmline.errors import BrokerUnavailable, WasmlineError
from wasmline.errors import KafkaError as KafkaFailed
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.failures import mapped

T = TypeVar("T")

Codes = Mapping[int, WasmlineError]
"""What an error code means here."""

TIMEOUT = 15.0
"""Seconds that one request may take: more than a cluster needs to replace a lost node."""

ATTEMPT = 3.0
"""Seconds after which a request is made once more: one to a broker that has died is not answered, and not given up."""

LOOK_AGAIN = 0.1

ASK_AGAIN = 0.02
"""Seconds until a cluster that is between two states is asked again."""

REFUSALS = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""Troubles that do not pass by waiting: wrong credentials, an unknown certificate."""


class Administrator:
    """Waits for the client's answers. ``client`` is the admin client, alive for as long as this object."""

    def __init__(self, config: KafkaConfig, timeout: float) -> None:
        self.servers = config.bootstrap_servers
        self.timeout = timeout
        self._troubles: list[KafkaError] = []
        with mapped(self.servers):
            # The list's own method and not one of ours: no cycle keeps the client's threads alive after us.
            self.client = AdminClient(config.client(error_cb=self._troubles.append))

    def result(self, answer: Future[T], codes: Codes | None = None) -> T:
        """Return what ``answer`` comes to; ``codes`` says what a particular error code means here.

        Raises BrokerUnavailable when nobody answers in time, KafkaError as soon as the cluster refuses the connection.
        """
        while True:
            try:
                with mapped(self.servers, codes):
                    return answer.result(LOOK_AGAIN)
            except BrokerUnavailable as error:
                if error not in (codes or {}).values() and (trouble := self._trouble()):
                    message = f"{error} Last trouble: {trouble.str()}"
                    raise BrokerUnavailable(message, bootstrap_servers=self.servers) from error
                raise
            except TimeoutError:
                trouble = self._trouble()
                if trouble is not None and trouble.code() in REFUSALS:
                    raise KafkaFailed(f"{self.servers} refused the connection: {trouble.str()}") from None

    @property
    def attempt(self) -> float:
        """Seconds that one of several requests may take."""
        return min(ATTEMPT, self.timeout)

    def settled(self, ask: Callable[[Codes], T], passing: Collection[int], state: str, *, learns: bool = False) -> T:
        """Ask again for as long as the answer is one of the ``passing`` codes, and return the one that is not.

        ``ask`` is told what these codes mean. Raises BrokerUnavailable with ``state``, what the cluster is in, when
        that has not passed in time. With ``learns`` no answer is asked again, too, and the client learns before who
        leads by now: by itself it keeps to a leader or a controller that is gone.
        """
        unsettled = BrokerUnavailable(state, bootstrap_servers=self.servers)
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return ask(dict.fromkeys(passing, unsettled))
            except BrokerUnavailable as error:
                if not (error is unsettled or learns) or time.monotonic() > deadline:
                    raise
                time.sleep(ASK_AGAIN)
            if learns:
                with suppress(KafkaException):  # who does not answer this either is asked again
                    self.client.list_topics(timeout=self.attempt)

    def _trouble(self) -> KafkaError | None:
        """Return the last thing that went wrong with a connection; the client reports it when it is polled."""
        self.client.poll(0)
        told = [error for error in self._troubles if error.code() != KafkaError._ALL_BROKERS_DOWN]
        self._troubles.clear()
        self._troubles += told[-1:]
        return told[-1] if told else None
