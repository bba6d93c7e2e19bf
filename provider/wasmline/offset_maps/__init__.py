"""Offset maps: which records above a committed offset are done, as the text beside it in Kafka. Pure."""

from wasmline.offset_maps.codec import decode, encode, parse

__all__ = ["decode", "encode", "parse"]
