"""Leases: partitions of a job for a time, each worked on by a key-parallel consumer. No Spark."""
