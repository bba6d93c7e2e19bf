"""Sensors: tasks that wait for a state of the cluster."""
