"""The page of the Airflow plugin without an Airflow: its files, and answers that are made up."""
