"""Handler that adds customer data from an HTTP service to each order: one call a record, concurrent across keys.

It runs in Spark's tasks, which need ``wasmline`` and ``urllib3`` and nothing of Airflow. The environment of the tasks
has the service's address, ``CUSTOMERS_URL``, and the output topic, ``ENRICHED_TOPIC``.
"""

from __future__ import annotations

import json
import os

import urllib3

from wasmline.consumer import ConsumedRecord, Output
from wasmline.errors import TerminalFailure

TIMEOUT = urllib3.Timeout(connect=2.0, read=5.0)
"""Seconds. A call that takes longer fails and is retried; without a limit it would block its key forever."""

MOST_CONNECTIONS = 1_000
"""Above the job's max_concurrency, which is the limit: a lower pool size would look like a slow service."""

TRY_AGAIN = frozenset({408, 425, 429})
"""Status codes to retry; any other status of 400 to 499 is the order's own fault."""

service = urllib3.PoolManager(maxsize=MOST_CONNECTIONS, timeout=TIMEOUT, retries=False)
"""The connections of this process, for all threads. It does not retry: the job does, while other keys continue."""


def with_customer(record: ConsumedRecord) -> Output:
    """Return the order with its customer. Raises TerminalFailure if a retry cannot help, else the error.

    After a crash some calls are made a second time, with any delivery: a service that must not act twice on one order
    identifies it by its Idempotency-Key.
    """
    order, customer = _read(record)
    place = f"{record.topic}-{record.partition}-{record.offset}"
    url = f"{os.environ['CUSTOMERS_URL']}/customers/{customer}"
    answer = service.request("GET", url, headers={"Idempotency-Key": place})
    if 400 <= answer.status < 500 and answer.status not in TRY_AGAIN:
        reason = "no such customer" if answer.status == 404 else "refused"
        raise TerminalFailure(f"{reason}: the service answered {answer.status} for {customer}")
    if answer.status != 200:
        raise ConnectionError(f"the service answered {answer.status} for {customer}")
    enriched = json.dumps({**order, "customer": answer.json()}, separators=(",", ":")).encode()
    return Output(os.environ["ENRICHED_TOPIC"], enriched, key=record.key, timestamp=record.timestamp)


def _read(record: ConsumedRecord) -> tuple[dict[str, object], str]:
    try:
        order = json.loads(record.value or b"")
        return order, str(order["customer"])
    except (ValueError, KeyError, TypeError) as error:
        raise TerminalFailure(f"not an order: {error!r}") from error
