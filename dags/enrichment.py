"""Gives each order what a service knows of its customer: one HTTP call a record, as many at a time as the job allows.

It runs where Spark's tasks do, which needs ``wasmline`` and ``urllib3`` there and nothing of Airflow. The environment
of the tasks says where the service is, ``CUSTOMERS_URL``, and where the orders go, ``ENRICHED_TOPIC``.
"""

from __future__ import annotations

import json
import os

import urllib3

from wasmline.consumer import ConsumedRecord, Output
from wasmline.errors import TerminalFailure

TIMEOUT = urllib3.Timeout(connect=2.0, read=5.0)
"""Seconds. A call that takes longer has failed and is made again; without a limit it would hold its key for ever."""

MOST_CONNECTIONS = 1_000
"""More than the job's max_concurrency, which is the limit: a second one, below it, would look like a slow service."""

TRY_AGAIN = frozenset({408, 425, 429})
"""Refusals that may pass; any other status of 400 to 499 is the order's own fault."""

service = urllib3.PoolManager(maxsize=MOST_CONNECTIONS, timeout=TIMEOUT, retries=False)
"""The connections of this process, for all threads. It makes no call again: the job does, while other keys go on."""


def with_customer(record: ConsumedRecord) -> Output:
    """Return the order with its customer. Raises TerminalFailure where trying again is of no use, and else what failed.

    After a crash some calls are made a second time, whatever the delivery is: a service that must not act twice on one
    order knows it by its Idempotency-Key.
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
