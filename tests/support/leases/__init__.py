"""Jobs in parallel mode under test: drivers, workers, handlers and their load."""
