"""Offset maps: the records done above a committed offset, as its metadata in Kafka. Pure."""

from wasmline.offset_maps.codec import decode, encode, parse
from wasmline.offset_maps.limits import DEFAULT_LIMITS, OffsetMapLimits

__all__ = ["DEFAULT_LIMITS", "OffsetMapLimits", "decode", "encode", "parse"]
