"""Validates, links and compiles guests, and caches the compiled code."""
