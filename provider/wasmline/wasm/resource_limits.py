"""Resource limits of a transform instance and of its host."""

from __future__ import annotations

from dataclasses import dataclass

from wasmline.errors import LimitExceeded
from wasmline.transform_limits import MAX_CPU_MS_PER_RECORD, MAX_MEMORY_BYTES, MIN_MEMORY_BYTES

PAGE = MIN_MEMORY_BYTES
ADDRESS_SPACE = MAX_MEMORY_BYTES
OUTPUT_OVERHEAD_BYTES = 16
"""Bytes counted for a written record, and for each header, besides the payload: about their size in the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceLimits:
    """Bounds that hold for every instance of a transform, whatever its module does.

    ``memory_bytes``: the guest's linear memory; growth beyond it is rejected, as on Redpanda. Tables are not counted:
    they take 56 MiB at most. ``cpu_ms_per_record``: CPU time of the guest's thread from one record to the next,
    start-up included; kept to about 1 %.
    ``output_bytes_per_record``: payload bytes that one record may write; each record written counts sixteen more,
    and each of its headers.
    ``log_bytes_per_batch``: log text kept per call of ``transform``; each line counts twelve bytes more.
    """

    memory_bytes: int = 64 * 2**20
    cpu_ms_per_record: int = 3000
    output_bytes_per_record: int = 64 * 2**20
    log_bytes_per_batch: int = 64 * 1024

    def __post_init__(self) -> None:
        _between("memory_bytes", self.memory_bytes, PAGE, ADDRESS_SPACE)
        _between("cpu_ms_per_record", self.cpu_ms_per_record, 1, MAX_CPU_MS_PER_RECORD)
        _between("output_bytes_per_record", self.output_bytes_per_record, 1, 2**30)
        _between("log_bytes_per_batch", self.log_bytes_per_batch, 0, 2**26)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """Bounds of the host's own memory, in addition to the guest's, while it serves a batch.

    ``shim_bytes``: the shim's memory, with the records that are loaded at once and those of their outputs that were
    not collected yet. ``part_bytes``: outputs that are collected before a part is returned; the outputs of one record,
    and those not collected yet, may be added.
    """

    shim_bytes: int = ADDRESS_SPACE
    part_bytes: int = 128 * 2**20

    def __post_init__(self) -> None:
        _between("shim_bytes", self.shim_bytes, 2**20, ADDRESS_SPACE)
        _between("part_bytes", self.part_bytes, 1, 2**29)  # so that a part with these additions fits Arrow's columns


def _between(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise LimitExceeded(f"{name}={value}: choose a value from {low} to {high}")
