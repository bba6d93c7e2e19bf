"""Streams that a real Airflow supervises, while their parts and Airflow's are killed."""
