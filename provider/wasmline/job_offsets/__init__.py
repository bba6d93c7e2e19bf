"""The committed offsets of a job's consumer group: where a run begins, renewal, retention and transactions."""
