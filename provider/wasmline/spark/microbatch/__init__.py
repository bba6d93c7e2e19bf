"""Deployments as Structured Streaming queries, a generation for each micro-batch."""
