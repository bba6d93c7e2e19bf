"""The delivery example: its records, its contract, and the independent check of what a pipeline made of them.

Nothing here imports Airflow or Spark, so that a notebook, a test and a task can use the same functions.
"""
