"""Stream jobs under test, on a Spark of one process or of several."""
