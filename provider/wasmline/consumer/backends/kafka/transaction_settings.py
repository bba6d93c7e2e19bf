"""Settings and time limits of the producers that write transactions."""

from __future__ import annotations

from wasmline.consumer.timings import DEFAULT_TIMINGS

PRODUCER_SETTINGS = {
    "transaction.timeout.ms": "30000",  # longer than a cluster needs to replace a lost broker
    "delivery.timeout.ms": "25000",
    # The time of a transaction is dominated by the back-off that follows CONCURRENT_TRANSACTIONS.
    "retry.backoff.ms": "1",
    "retry.backoff.max.ms": "20",
    "linger.ms": "20",  # the end of a transaction sends what is left
    "socket.nagle.disable": "true",  # a transaction is small requests in a row, which would wait for each other's ACK
}

OPEN_TIMEOUT_S = DEFAULT_TIMINGS.transactions_open_timeout_s
"""Maximum seconds of each step of opening a partition."""
