"""Waiting without a worker."""
