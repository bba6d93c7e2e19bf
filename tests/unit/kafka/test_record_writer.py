"""A writer of records after an error that its producer does not survive."""

from __future__ import annotations

from contextlib import closing

import pytest

from support.mock_cluster import INIT_PRODUCER_ID, TOPIC, MockCluster
from wasmline.errors import NotAuthorized
from wasmline.kafka import RecordWriter
from wasmline.kafka.producer import Record


def test_a_client_that_may_write_to_no_topic_is_told_so_and_writes_once_it_may() -> None:
    cluster = MockCluster()
    records: list[Record] = [(b"key", value, [], None) for value in (b"1", b"2")]
    with closing(RecordWriter(cluster.config)) as writer:
        for _ in range(2):
            cluster.deny(INIT_PRODUCER_ID)
            with pytest.raises(NotAuthorized, match=f"to use topic {TOPIC}: grant its user an ACL on it"):
                writer.write(TOPIC, records)
        assert writer.write(TOPIC, records) == 2
