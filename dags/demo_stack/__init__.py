"""Kafka and Airflow of the demo on this machine: start, stop and progress."""
