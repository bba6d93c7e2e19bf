"""The function of `make bench-scale`."""

import os

from wasmline.consumer import ConsumedRecord, Output

TOPIC = os.environ["SCALE_OUTPUT"]


def copy(record: ConsumedRecord) -> Output:
    """Write a record as it is."""
    return Output(TOPIC, record.value, record.key)
