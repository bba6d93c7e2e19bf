"""The delivery example: its records, its contract, and an independent verification of a pipeline's outputs.

Nothing here imports Airflow or Spark, so that a notebook, a test and a task can use the same functions.
"""
