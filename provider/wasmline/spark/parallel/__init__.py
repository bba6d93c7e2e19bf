"""Deployments and handlers in parallel mode: Spark tasks that work on leases."""
