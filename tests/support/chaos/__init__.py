"""Groups of consumer processes that are killed, frozen and restarted, and their records."""
