"""Offset maps: the records done above a committed offset, as its metadata in Kafka. Pure."""

from wasmline.offset_maps.codec import decode, encode, parse

__all__ = ["decode", "encode", "parse"]
