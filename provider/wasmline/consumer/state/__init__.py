"""The state of a consumer's partitions. Pure: no input or output, no threads, no clock."""
