"""Guests and fixtures for tests of transforms and pipelines, over a real Kafka. The engine never loads it."""
