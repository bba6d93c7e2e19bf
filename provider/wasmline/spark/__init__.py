"""Deployments and trainings as Spark applications."""
