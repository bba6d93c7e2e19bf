from collections.abc import Iterator

import pytest

from support.mock_cluster import TOPIC, MockCluster, lent_cluster
from wasmline.training import retrain_samples
from wasmline.training.retrain_samples import first_numbers, newest_values


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    yield from lent_cluster()


def test_the_first_number_of_each_identity_counts() -> None:
    values = [
        b'{"id": "a", "minutes": null}',
        b'{"id": "a", "minutes": 7}',
        b'{"id": "a", "minutes": 8}',
        b'{"id": 5, "minutes": 9.5}',
        b'{"id": true, "minutes": 1}',
        b'{"id": [1], "minutes": 1}',
        b'{"minutes": 1}',
        None,
    ]
    assert first_numbers(values, "id", "minutes") == {"a": 7.0, "5": 9.5}


def test_a_header_whose_name_is_no_text_is_no_provenance(cluster: MockCluster) -> None:
    for value, header in ((b"1", b"source"), (b"2", b"\xff\xfe"), (b"3", b"source")):
        cluster.produce(value, header)
    for _ in range(2):
        found = newest_values(cluster.config, TOPIC, {"0": (0, 3)}, 3, model="eta@1.0.0")
        assert list(found) == [b"1", b"2", b"3"]


def test_the_newest_records_are_read_up_to_a_number_and_a_size(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (b"one", b"two", b"three", b"four", b"five"):
        cluster.produce(value, b"source")
    assert list(newest_values(cluster.config, TOPIC, {"0": (0, 5)}, 4)) == [b"two", b"three", b"four", b"five"]
    monkeypatch.setattr(retrain_samples, "MAX_BYTES", 8)
    assert list(newest_values(cluster.config, TOPIC, {"0": (0, 5)}, 4)) == [b"two", b"three"]
