"""Starts, stops and monitors the demo's Kafka and Airflow on this machine."""
