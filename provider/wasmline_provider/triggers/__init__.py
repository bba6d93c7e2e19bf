"""Triggers: wait without a worker."""
