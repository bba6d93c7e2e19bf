"""Threads and clocks of a consumer: the control loop, its executors and its committers."""
