"""Hooks: clients of the engine made from Airflow connections; the only code that reads a Connection."""
