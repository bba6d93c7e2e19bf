"""Orders, a slow service and a consumer to compare with, for the demo of ``enrich_over_http``."""
