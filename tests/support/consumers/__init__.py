"""Consumers under test, in memory and on Kafka."""
