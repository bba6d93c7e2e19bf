"""Harnesses, processes and data that several kinds of tests share."""
