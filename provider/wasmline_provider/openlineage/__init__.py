"""Describes to OpenLineage what tasks read and write.

Nothing here is imported before Airflow sends an event: the library is of the extra ``openlineage``. The names of
``dataset_names`` need no library.
"""
