"""Exit statuses of spark-submit in words."""

import pytest

from wasmline.spark.spark_submit_supervisor import describe_status


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with status 0"),
        (1, "ended with status 1"),
        (127, "ended with status 127"),
        (128, "ended with status 128"),
        (-9, "was killed by SIGKILL (out of memory, or kill -9)"),
        (-15, "was killed by SIGTERM"),
        (-200, "was killed by signal 200"),
        (137, "ended with status 137, because its driver was killed by SIGKILL (out of memory, or kill -9)"),
        (143, "ended with status 143, because its driver was killed by SIGTERM"),
        (255, "ended with status 255"),
    ],
)
def test_a_status_names_the_signal_that_ended_the_driver(status: int, words: str) -> None:
    assert describe_status(status) == words
