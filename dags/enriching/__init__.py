"""What the demo of ``enrich_over_http`` needs and a user has already: orders, a slow service, something to beat."""
