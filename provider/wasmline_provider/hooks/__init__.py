"""From Airflow's own connections to the engine: the only code that reads a Connection."""
