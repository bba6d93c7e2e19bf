"""Leases: partitions of a job for a time, each processed by a key-parallel consumer. No Spark."""
