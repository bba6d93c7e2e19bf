"""Deployments as Structured Streaming queries, with a generation for each micro-batch."""
