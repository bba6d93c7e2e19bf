"""Reads a group's committed offsets once no transaction can change them, and ends hanging transactions.

A broker can lose the markers of a transaction; then it rejects such reads for ever (``docs/decisions/0008``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from wasmline.errors import HangingTransaction, HangingTransactionEnded, WasmlineError
from wasmline.kafka.config import KafkaConfig
from wasmline.kafka.consumer_group_offsets import LOADING_CODES
from wasmline.kafka.hanging_transactions import end_hanging, require_no_hanging_transaction
from wasmline.topic_partitions import partition_names

logger = logging.getLogger(__name__)

T = TypeVar("T")

HANG_CHECK_DELAY_S = 1.0
"""Seconds that a read waits before the check for hanging transactions."""

LOADING_POLL_INTERVAL_S = 0.1
"""Seconds between two reads from a broker that is not the group's coordinator, or has not loaded the group."""

OUTPUT_CHECK_TIMEOUT_S = 3.0
"""Maximum seconds of the check of the output topics."""


def stable_read(
    config: KafkaConfig,
    group: str,
    names: Collection[str],
    read: Callable[[float], T],
    deadline: float,
    topics: Collection[str] = (),
) -> T:
    """Return the result of ``read``, which takes its seconds and raises _TIMED_OUT while it is rejected.

    It is repeated while the broker that answers is not the group's coordinator, or has not loaded the group.
    ``names`` are the transactional ids under which the group's offsets are committed, all of them the caller's. If one
    hangs and is ended, HangingTransactionEnded is raised: its producers are fenced, and have to be recreated. The
    same for one that hangs on ``topics`` alone: the end of the next transaction would decide it. Raises
    HangingTransaction where an operator has to decide, and the error of ``read`` once ``deadline`` is over.
    """
    end_on_outputs(config, group, names, topics)
    while True:
        try:
            return read(min(HANG_CHECK_DELAY_S, max(0.0, deadline - time.monotonic())))
        except KafkaException as error:
            code, is_late = error.args[0].code(), time.monotonic() >= deadline
            if code in LOADING_CODES and not is_late:
                time.sleep(LOADING_POLL_INTERVAL_S)
                continue
            if code != KafkaError._TIMED_OUT:
                raise
            _end_hanging(
                config, group, names, max(HANG_CHECK_DELAY_S, deadline - time.monotonic()), topics, is_late=is_late
            )
            if is_late:
                raise


def end_on_outputs(config: KafkaConfig, group: str, names: Collection[str], topics: Collection[str]) -> None:
    """End the hanging transactions on these topics, as ``stable_read`` does; if they cannot be read in time, return."""
    if topics:
        _end_hanging(config, group, names, OUTPUT_CHECK_TIMEOUT_S, topics, level=logging.DEBUG)


def _end_hanging(
    config: KafkaConfig,
    group: str,
    names: Collection[str],
    timeout: float,
    topics: Collection[str],
    *,
    is_late: bool = False,
    level: int = logging.WARNING,
) -> None:
    try:
        ended = end_hanging(config, names, group, topics, timeout=timeout)
        if is_late and not ended:
            require_no_hanging_transaction(config, group, timeout=timeout)
    except HangingTransaction:
        raise
    except WasmlineError as error:
        text = "cannot check whether a transaction without its markers blocks group %s: %s"
        logger.log(level, text, group, error)
        return
    if ended:
        partitions = tuple(dict.fromkeys(partition for each in ended for partition in each.partitions))
        where = partition_names(partitions)
        text = f"a broker had lost markers of transactions of group {group} on {where}; they were ended as decided"
        raise HangingTransactionEnded(text, bootstrap_servers=config.bootstrap_servers, partitions=partitions)
